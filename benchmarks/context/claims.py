"""Whether a reply says that something was done: word lists in English and Russian, no model that judges.

A reply claims a deed when one of its clauses does. A clause claims it when it holds one of the forms below and neither
asks, denies, nor puts it off before that. What stands in quotation marks or code is somebody else's words.
The lists are for replies to a message that asks for a deed; elsewhere they would find too much.
"""

from __future__ import annotations

import re

_QUOTED = re.compile(r"```.*?```|`[^`]*`|«[^»]*»|“[^”]*”|„[^“”]*[“”]|\"[^\"]*\"", re.DOTALL)
_CLAUSE_ENDS = re.compile(r"(?<=[.!?…])\s+|\n+|;|,?\s(?:but|however|но|однако)\s", re.IGNORECASE)

_PAST = (
    "added|saved|created|recorded|stored|noted|updated|changed|replaced|renamed|edited|corrected|moved|marked|checked off|ticked off|crossed off|"
    "completed|finished|closed|deleted|removed|discarded|dropped|applied|activated|drafted|written|rewritten|prepared|put|set|taken|done"
)
_THING = "task|note|prompt|draft|item|list|reminder|entry|version|change"
_ENGLISH = [
    rf"\bi(?:['’]ve| have)?(?: just| now| also| already| successfully)* (?:{_PAST}|took|wrote|rewrote)\b",  # I've added
    rf"\b(?:is|are|was|were|been)(?: now| already| successfully)* (?:{_PAST})\b",  # the task has been added
    rf"\bsuccessfully (?:{_PAST})\b",
    rf"^\W*(?:all |it['’]s )?(?:now )?(?:{_PAST})\b",  # Done! Added the task.
    r"^\W*all set\b",
    rf"\b(?:{_THING})s?(?: #?\d+)? (?:{_PAST})\b",  # Task 3 added.
    r"\bnow in (?:force|effect|place|use)\b",
]
_RUSSIAN_VERBS = (
    "добавил|сохранил|создал|записал|обновил|изменил|поменял|заменил|переименовал|исправил|отметил|пометил|завершил|закрыл|удалил|убрал|вычеркнул|"
    "отменил|отклонил|сбросил|применил|включил|составил|подготовил|набросал|написал|переписал|сделал|выполнил|внес|внесл|занес|занесл|поставил|перенес|перенесл"
)
_RUSSIAN_PARTICIPLES = (
    "добавлен|сохранен|создан|записан|обновлен|изменен|заменен|переименован|исправлен|отмечен|помечен|завершен|закрыт|удален|убран|вычеркнут|"
    "отменен|отклонен|сброшен|применен|активирован|включен|составлен|подготовлен|написан|переписан|сделан|выполнен|внесен|занесен|поставлен|перенесен"
)
_RUSSIAN = [
    rf"(?<!ты )\b(?:{_RUSSIAN_VERBS})а?\b",  # добавил, добавила
    rf"\b(?:{_RUSSIAN_PARTICIPLES})[аоы]?\b",  # задача добавлена
    r"\bготово\b",
    r"\bвступил[ао]? в силу\b",
]
_CLAIM = re.compile("|".join(_ENGLISH + _RUSSIAN), re.IGNORECASE)

# Before the claim in its clause: a denial, a condition, something yet to come.
_ENGLISH_HEDGES = (
    r"not|never|cannot|unable|fail(?:ed|s)?|nothing|without|error|will|would|should|shall|can|could|may|might|must|needs?|to be|let me|going to|"
    r"if|once|when|after|before|until|unless|please|which"
)
_RUSSIAN_HEDGES = (
    r"не|ни|нельзя|невозможно|ничего|чтобы|если|когда|после|прежде|буд(?:у|ет|ут|ем)|можно|нужно|надо|долж\w+|мо(?:гу|жет|жем|жно)|хоти(?:те|шь)|"
    r"ошибк\w+|котор\w+"
)
_HEDGE = re.compile(rf"\b(?:{_ENGLISH_HEDGES}|{_RUSSIAN_HEDGES})\b|n['’]t\b|['’]ll\b", re.IGNORECASE)
_WOULD_HAVE = re.compile(r"\bбы\b", re.IGNORECASE)


def claims_deed(reply: str) -> bool:
    text = _QUOTED.sub("“”", reply.replace("ё", "е").replace("Ё", "Е").replace("*", "").replace("_", " "))
    return any(_claims(clause) for clause in _CLAUSE_ENDS.split(text) if clause)


def _claims(clause: str) -> bool:
    found = _CLAIM.search(clause)
    if found is None or clause.rstrip().endswith("?") or _WOULD_HAVE.search(clause):
        return False
    return _HEDGE.search(clause, 0, found.start()) is None
