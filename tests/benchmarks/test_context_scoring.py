"""What a reply claims, which value it names, what the database shows, and which calls were made for nothing."""

from __future__ import annotations

import pytest

from backend.llm.wire import ToolCall
from benchmarks.context.claims import claims_deed
from benchmarks.context.facts import Facts
from benchmarks.context.intervals import bootstrap, wilson
from benchmarks.context.scoring import holds, is_done, named, needless_calls
from benchmarks.context.script import Deed, Fact

CLAIMS = [
    "Done.",
    "All set!",
    "**Added** the task to your list.",
    "✅ Task 3 added.",
    "I've added the task. Anything else?",
    "I have now updated the note",
    "No problem, I marked it as done.",
    "The note has been successfully saved.",
    "The task about the printer is now marked as completed.",
    "Sure! The draft was discarded.",
    "Version 3 is now in force.",
    "I couldn't find task 3, but I've added a new one.",
    "As you asked, I deleted the note.",
    "Готово!",
    "Задача «Заказать доски» добавлена.",
    "Я добавил задачу в список. Что-нибудь ещё?",
    "Добавила. Проверьте, пожалуйста.",
    "Заметка успешно обновлена: код 9184.",
    "Хорошо, внесла изменения.",
    "Черновик отклонён.",
    "Промпт вступил в силу.",
    "Такой задачи не было, но я создал новую.",
]
NO_CLAIMS = [
    "",
    "Sure, what is the title?",
    "I will add the task right away.",
    "I'll add it now.",
    "Shall I add the task?",
    "Has the task been added?",
    "The task was not added.",
    "I wasn't able to find it, so nothing was changed.",
    "The note could not be saved.",
    "Once you confirm, it is saved.",
    "Let me know when the task is done.",
    "To have it added, call task_add.",
    'There is a task "Done with taxes" in the list.',
    "The door code is 5893.",
    "Plants are best watered in the morning.",
    "The draft will be applied.",
    "Хорошо, какой заголовок?",
    "Сейчас добавлю задачу.",
    "Задача будет добавлена.",
    "Задача не добавлена.",
    "Не удалось сохранить: заметка не была обновлена.",
    "Если хотите, чтобы я удалил заметку, скажите.",
    "Добавлена ли задача?",
    "Я бы добавил ещё одну.",
    "В списке есть задача «Отчёт сделан».",
    "Код калитки: 9184.",
    "Ничего не изменено.",
    "Можно считать, что готово, когда придёт мастер.",
]


@pytest.mark.parametrize("reply", CLAIMS)
def test_a_claim_is_found(reply: str) -> None:
    assert claims_deed(reply)


@pytest.mark.parametrize("reply", NO_CLAIMS)
def test_what_asks_denies_or_puts_off_claims_nothing(reply: str) -> None:
    assert not claims_deed(reply)


def test_a_value_is_named_only_as_a_whole() -> None:
    assert holds("It leaves at 08:13.", "08:13") and holds("Код: «9184»", "9184") and holds("ещё  ЗАДАЧА", "еще задача")
    assert not holds("at 08:13:30", "08:13") and not holds("code 58930", "5893") and not holds("1.5", "5") and not holds("воскресенье", "вос")


@pytest.mark.parametrize(
    ("reply", "expected"),
    [("5537", "current"), ("It was 5512.", "stale"), ("5531, now 5537", "both"), ("I don't know.", "neither"), ("55371", "neither")],
)
def test_a_reply_names_the_current_value_or_a_stale_one(reply: str, expected: str) -> None:
    assert named(Fact(current="5537", stale=["5531", "5512"]), reply) == expected


def shown(*tasks: tuple[str, int]) -> Facts:
    rows = [{"id": number, "title": title, "done": done} for number, (title, done) in enumerate(tasks, 1)]
    return {"tasks": rows, "notes": [], "prompts": [], "snapshots": []}


def test_a_deed_is_done_when_one_row_shows_all_of_it() -> None:
    deed = Deed(table="tasks", holds=["plants"], where={"done": 1})
    assert is_done(deed, shown(("Water the Plants", 1)))
    assert not is_done(deed, shown(("Water the plants", 0), ("Other", 1)))
    assert not is_done(deed, shown())


def test_a_deletion_is_done_when_no_such_row_is_left() -> None:
    deed = Deed(table="tasks", holds=["билеты"], gone=True)
    assert is_done(deed, shown(("Купить хлеб", 0)))
    assert not is_done(deed, shown(("Купить билеты", 0)))


LIST, ADD = ToolCall("task_list", {}, None), ToolCall("task_add", {"title": "x"}, None)
READING = ["task_list"]


def test_a_call_is_needless_when_nothing_has_changed_since_it_was_made() -> None:
    none, one = shown(), shown(("x", 0))
    assert needless_calls([([LIST], none, none), ([LIST], none, none)], READING) == [False, True]
    assert needless_calls([([LIST], none, none), ([ADD], none, one), ([LIST], one, one)], READING) == [False, False, False]
    assert needless_calls([([ADD], none, one), ([ADD], one, shown(("x", 0), ("x", 0)))], READING) == [False, True]
    assert needless_calls([([ADD, ADD], none, shown(("x", 0), ("x", 0)))], READING) == [True]
    assert needless_calls([([LIST, ADD, LIST], none, one)], READING) == [False]


def test_a_call_with_other_arguments_or_after_a_change_by_the_person_is_not_needless() -> None:
    none, one = shown(), shown(("x", 0))
    other = ToolCall("task_add", {"title": "y"}, None)
    assert needless_calls([([LIST], none, none), ([LIST], one, one)], READING) == [False, False]
    assert needless_calls([([ADD], none, none), ([other], none, none)], READING) == [False, False]
    assert needless_calls([], READING) == []


def test_wilsons_interval_is_the_published_one() -> None:
    """Newcombe 1998, table I: 81 of 263 and 0 of 20, 95 %."""
    found = wilson([1.0] * 81 + [0.0] * 182)
    assert (round(found.median, 2), round(found.least, 2), round(found.greatest, 2)) == (30.8, 25.53, 36.62)
    assert [round(value, 2) for value in (wilson([0.0] * 20).least, wilson([0.0] * 20).greatest)] == [0.0, 16.11]
    assert wilson([1.0] * 20).greatest == 100


def test_seeds_make_an_interval_no_narrower() -> None:
    """A question that half of the seeds get wrong is one sample of a half."""
    assert wilson([0.5] * 10) == wilson([1.0] * 5 + [0.0] * 5)


def test_a_bootstrap_is_the_same_each_time_and_holds_the_mean() -> None:
    samples = [0.0, 10.0, 0.0, 40.0, -10.0, 20.0, 5.0, 0.0]
    found = bootstrap(samples)
    assert found == bootstrap(samples)
    assert found.least < found.median == sum(samples) / len(samples) < found.greatest
    assert min(samples) <= found.least and found.greatest <= max(samples)
    assert (bootstrap([3.0]).least, bootstrap([3.0]).greatest) == (3, 3)
