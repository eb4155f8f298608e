"""The command line of `scripts/backup` and `scripts/restore`: whole copies of the database, made and put back."""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from backend.errors import CleanroomError
from backend.settings import Settings
from backend.store.copies import beside, check, keep, make, put_back
from backend.store.sqlite_file import InstanceLock, file_path

BACKUP = """\
Copy the database into one file, whole and checked, also while Cleanroom runs. The copy holds everything:
chats, messages, drafts, prompts, tasks, notes, snapshots."""

RESTORE = """\
Put a backup in the database's place. The backup is checked first, and what is there now is kept in a backup
beside it. Cleanroom must not be running; an older backup is brought up to date at the next start."""

EPILOG = "exit status: 0 when done, 1 when refused or failed; then nothing was changed."


def main(arguments: list[str]) -> int:
    options = _parse(arguments)
    try:
        path = options.database.resolve() if options.database else file_path(Settings.from_environment().database_url)
        options.run(path, options)
    except CleanroomError as error:
        return _refuse(options.command, error.message)
    except OSError as error:
        return _refuse(options.command, f"{error.filename or 'a file'} can't be used: {error.strerror}.")
    except (KeyboardInterrupt, EOFError):
        return _refuse(options.command, "stopped; nothing was changed.")
    return 0


def _refuse(command: str, reason: str) -> int:
    print(f"{command}: {reason}", file=sys.stderr)
    return 1


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m backend.copies")
    commands = parser.add_subparsers(dest="command", required=True)
    shared: dict[str, Any] = {"epilog": EPILOG, "formatter_class": argparse.RawDescriptionHelpFormatter}
    backup = commands.add_parser("backup", prog="scripts/backup", description=BACKUP, **shared)
    backup.add_argument("target", type=Path, nargs="?", help="the copy's file (default: beside the database, named by the time)")
    backup.set_defaults(run=_backup)
    restore = commands.add_parser("restore", prog="scripts/restore", description=RESTORE, **shared)
    restore.add_argument("backup", type=Path, help="a file that scripts/backup made")
    restore.add_argument("--yes", action="store_true", help="don't ask")
    restore.set_defaults(run=_restore)
    for command in (backup, restore):
        command.add_argument("--database", type=Path, metavar="PATH", help="the database's file (default: CLEANROOM_DATABASE_URL)")
    return parser.parse_args(arguments)


def _backup(path: Path, options: argparse.Namespace) -> None:
    target = (options.target or beside(path)).resolve()
    if not path.exists():
        raise CleanroomError(f"there is no database {path}.")
    if target.exists():
        raise CleanroomError(f"{target} is there already; name another file.")
    make(path, target)
    print(f"{target}: {target.stat().st_size:,} bytes, checked.")


def _restore(path: Path, options: argparse.Namespace) -> None:
    backup = options.backup.resolve()
    with ExitStack() as stack:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = InstanceLock(path)
        lock.acquire()
        stack.callback(lock.release)
        messages = check(backup)
        if path.exists():
            _make_sure(path, backup, messages, options)
            kept = beside(path)
            keep(path, kept)
            print(f"What was there is kept as {kept}")
        put_back(backup, path)
    print(f"{path}: restored, {messages:,} messages.")


def _make_sure(path: Path, backup: Path, messages: int, options: argparse.Namespace) -> None:
    if options.yes:
        return
    if not sys.stdin.isatty():
        raise CleanroomError("there is no terminal to ask at; give --yes to restore without asking.")
    if input(f"Replace {path} by {backup} with {messages:,} messages? [y/N] ").strip().lower() not in ("y", "yes"):
        raise CleanroomError("nothing was changed.")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
