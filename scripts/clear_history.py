#!/usr/bin/env python3
"""Delete every message and working state of a Cleanroom database, and leave no text of them in its file."""

# ruff: noqa: E402 - the project's modules need its environment, which has to be found first

from __future__ import annotations

import argparse
import glob
import os
import sys
from contextlib import ExitStack
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
VENV = PROJECT / ".venv"

if Path(sys.prefix) != VENV and (VENV / "bin" / "python").exists():
    os.execv(VENV / "bin" / "python", [str(VENV / "bin" / "python"), __file__, *sys.argv[1:]])
sys.path.insert(0, str(PROJECT))

from backend.errors import CleanroomError
from backend.settings import Settings
from backend.store.copies import beside, make
from backend.store.erase import compact, erase, rows_to_erase
from backend.store.sqlite_file import InstanceLock, file_path

DESCRIPTION = """\
Delete all messages and working states, so that every chat starts with a clean slate. Chats, prompts, tasks, notes
and snapshots stay unless --all is given. A backup is made first, and nothing is deleted before you agree."""

EPILOG = """\
exit status: 0 when done (or when there was nothing to delete), 1 when refused or failed.
The deleted text is gone from the database's file and log, but not from backups: delete those yourself."""


def main() -> int:
    options = _parse()
    try:
        return _clear(options)
    except CleanroomError as error:
        print(f"clear_history: {error.message}", file=sys.stderr)
    except OSError as error:
        print(f"clear_history: {error.filename or 'a file'} can't be written: {error.strerror}.", file=sys.stderr)
    except (KeyboardInterrupt, EOFError):
        print("\nclear_history: stopped at the question; nothing was deleted.", file=sys.stderr)
    return 1


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=DESCRIPTION, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="delete chats, prompts, tasks, notes and snapshots too")
    parser.add_argument("--yes", action="store_true", help="don't ask")
    parser.add_argument("--no-backup", action="store_true", help="make no backup first")
    parser.add_argument("--force", action="store_true", help="even while a server has the database open; its pages show the old state until they are reloaded")
    parser.add_argument("--database", type=Path, metavar="PATH", help="the database's file (default: CLEANROOM_DATABASE_URL)")
    return parser.parse_args()


def _clear(options: argparse.Namespace) -> int:
    path = options.database.resolve() if options.database else file_path(Settings.from_environment().database_url)
    if not path.exists():
        raise CleanroomError(f"there is no database {path}.")
    with ExitStack() as stack:
        if not options.force:
            lock = InstanceLock(path)
            lock.acquire()
            stack.callback(lock.release)
        return _clear_held(path, options)


def _clear_held(path: Path, options: argparse.Namespace) -> int:
    counts = rows_to_erase(path, everything=options.all)
    if any(counts.values()):
        print(f"{path}: this will delete")
        for table, count in counts.items():
            print(f"{count:>10,}  {table}")
        _make_sure(options)
        if not options.no_backup:
            backup = beside(path)
            make(path, backup)
            print(f"Backup: {backup}")
        erase(path, list(counts))
    else:
        print(f"{path}: there is nothing to delete.")
    try:
        compact(path)
    except CleanroomError as error:
        raise CleanroomError(f"the rows are deleted, but {error.message} Run this again when no program has it open.") from error
    print("Done: no deleted text is left in the file.")
    _name_backups(path)
    return 0


def _make_sure(options: argparse.Namespace) -> None:
    if options.yes:
        return
    if not sys.stdin.isatty():
        raise CleanroomError("nothing was deleted: there is no terminal to ask at; give --yes to delete without asking.")
    if input("Delete them? [y/N] ").strip().lower() not in ("y", "yes"):
        raise CleanroomError("nothing was deleted.")


def _name_backups(path: Path) -> None:
    backups = sorted(path.parent.glob(f"{glob.escape(path.name)}.*.bak"))
    if backups:
        print("These backups still hold text that was deleted; remove them when you need them no more:")
        for backup in backups:
            print(f"  {backup}")


if __name__ == "__main__":
    sys.exit(main())
