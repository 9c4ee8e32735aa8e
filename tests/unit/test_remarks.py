"""`remarks`: the codes of notes, and their sentences."""

from __future__ import annotations

import pickle

from kcompact.remarks import Note, RemarkCode

NOTE = Note.of(RemarkCode.MORE_ORPHAN_INDEXES, count=1_000)


def test_the_sentence_has_the_facts() -> None:
    assert (NOTE.text, str(NOTE)) == 2 * ("and 1,000 more indexes have no .log beside them",)


def test_equal_notes_have_the_same_code_and_facts() -> None:
    assert NOTE == pickle.loads(pickle.dumps(NOTE)) == Note.of(RemarkCode.MORE_ORPHAN_INDEXES, count=1_000)
    assert len({NOTE, Note.of(RemarkCode.MORE_ORPHAN_INDEXES, count=1_000), Note.of(RemarkCode.MORE_RECORDS)}) == 2
