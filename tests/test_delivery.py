"""Delivery, by property: whatever is done in whatever order, two pages are told what a page that is opened now is told.

`DELIVERY=long` tries many more and random sequences.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis.stateful import run_state_machine_as_test

from backend import event_log
from backend.llm import agent
from backend.services import pulls
from tests.delivery_machine import Delivery
from tests.server_machine import effort
from tests.test_protocol import TYPES

# What changes nothing that a page holds.
READING = {
    "chat.open", "chat.close", "chat.history", "chat.search", "chat.export",
    "tool.list", "facts.get", "context.get", "context.inspect", "context.sent",
}  # fmt: skip

EFFORT = effort("DELIVERY", max_examples=3, steps=20)

Happening = Callable[[Delivery], None]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[Delivery]:
    """The machine; a log so short that who comes back is at times too late for it."""
    monkeypatch.setattr(event_log, "LOG_EVENTS", 40)
    monkeypatch.setattr(agent, "BUSY_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(pulls, "TELL_SECONDS", 0.01)

    class InThisFolder(Delivery):
        folder = tmp_path

    return InThisFolder


@pytest.mark.timeout(EFFORT.timeout_seconds)
def test_whatever_is_done_both_pages_are_told_of_it(machine: type[Delivery]) -> None:
    """R09, with R02, R03, R04 and R06 among the happenings."""
    run_state_machine_as_test(machine, settings=EFFORT.settings)


# Every command at least once, each in a place where it is carried out.
TOUR: list[Happening] = [
    lambda world: world.send(0, "text", again=True),
    lambda world: world.rename(0),
    lambda world: world.update(0, {"pinned": True, "ttl_messages": 5}),
    lambda world: world.hide(0, 0, hidden=True),
    lambda world: world.regenerate(0, "cut short"),
    lambda world: world.choose_a_variant(0, 0, 1),
    lambda world: world.choose_a_variant(0, 0, 2),
    lambda world: world.go_on(0, "text"),
    lambda world: world.edit(0, 0, "apply"),
    lambda world: world.answer_a_transaction(0, "no"),
    lambda world: world.send(0, "held in text", again=False),
    lambda world: world.leave(),
    lambda world: world.stop(0),
    lambda world: world.come_back(),
    lambda world: world.fork(0, 0),
    lambda world: world.create(titled=True, temporary=True),
    lambda world: world.press(0, "task_add"),
    lambda world: world.tend(0, "context.keep"),
    lambda world: world.tend(0, "context.clear"),
    lambda world: world.tend(0, "context.undo"),
    lambda world: world.open_again(0, 0, own_epoch=True),
    lambda world: world.open_again(0, 1, own_epoch=True),
    lambda world: world.update(0, {"approval": "before"}),
    lambda world: world.send(0, "two families", again=False),
    lambda world: world.restart(),
    lambda world: world.answer_a_call(0, "allow"),
    lambda world: world.answer_a_call(0, "deny"),
    lambda world: world.take_in_a_file(2),
    lambda world: world.take_in_a_file(3),
    lambda world: world.look_for_models(is_known=False),
    lambda world: world.set_a_window("fake:tools", 2048),
    lambda world: world.pull("new:1b"),
    lambda world: world.pull("held:1b"),
    lambda world: world.cancel_a_pull("held:1b"),
    lambda world: world.delete(0),
]


def test_no_command_that_changes_something_is_left_out(machine: type[Delivery]) -> None:
    """R09 for every command of the protocol, in one sequence."""
    world = machine()
    try:
        world.start()
        world.both_pages_show_what_a_new_one_shows()
        for happening in TOUR:
            happening(world)
            world.both_pages_show_what_a_new_one_shows()
        assert world.accepted == set(TYPES) - READING
        assert sum(page.resumed for page in world.pages) >= 2
    finally:
        world.teardown()
