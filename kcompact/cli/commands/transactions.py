"""`transactions`: how transactions ended, which are open or hang, and what waits for them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcompact.cli import options

if TYPE_CHECKING:
    from kcompact.log.directory import LogDir
    from kcompact.plan.options import PlanOptions
    from kcompact.plan.walk import Answer
    from kcompact.questions.transactions.answer import TransactionReport


@options.command("transactions")
@options.paths
@options.memory(what="the batches being read")
def command(paths: tuple[Path, ...], plan_options: PlanOptions, *, memory_bytes: int | None, as_json: bool) -> int:
    """Show how transactions ended, and what waits for them.

    Counts committed, aborted, empty, open and hanging transactions, and shows the open, the largest and the longest
    ones, what the last stable offset holds back, and what markers and tombstones wait for.

    Changes nothing and takes no lock.

    \b
    Examples:
      kcompact transactions /var/lib/kafka/payments-0
      kcompact transactions --json /var/lib/kafka | jq '.partitions[].transactions.open_transactions[]'
    """
    from kcompact.cli.json.transactions import TRANSACTIONS
    from kcompact.cli.output.entries import show_sections
    from kcompact.cli.question import Question, ask, each_partition
    from kcompact.plan.run_notes import option_notes
    from kcompact.views.transactions import transactions_section

    question = Question(
        document=TRANSACTIONS,
        answers=each_partition(partial(with_transactions, options.batch_memory(memory_bytes))),
        show=partial(show_sections, transactions_section),
        notes=partial(option_notes, explains=True),
    )
    return ask(question, paths, plan_options, as_json=as_json)


def with_transactions(memory_bytes: int, answer: Answer[Any], log_dir: LogDir) -> Answer[TransactionReport]:
    """Return a partition with its transactions. Raises StorageError."""
    from kcompact.cli.output.progress import bar_of
    from kcompact.cli.question import inspected
    from kcompact.questions.transactions.answer import log_transaction_report

    headers = inspected(answer, log_dir)
    plan = headers.plan
    assert plan is not None
    with bar_of(answer.directory, plan.log.size_bytes) as advance:
        report = log_transaction_report(plan, memory_bytes=memory_bytes, advance=advance)
    return replace(answer, found=report, error=headers.error or report.damage)
