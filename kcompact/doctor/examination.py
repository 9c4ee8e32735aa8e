"""Examines log directories: calls every check, and sorts what they find."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from kcompact import kernels
from kcompact.config.brokers import Broker, brokers_of
from kcompact.config.layers import with_refusals
from kcompact.config.metadata_log import METADATA_DIRECTORY
from kcompact.config.resolve import Configured
from kcompact.doctor.damage import of_error
from kcompact.doctor.findings import Finding, worst_first
from kcompact.doctor.log_dirs import (
    access_findings,
    checkpoint_findings,
    disk_findings,
    duplicate_findings,
    identity_findings,
    lock_findings,
    meta_properties_findings,
    metadata_log_findings,
    missing_log_dir_findings,
    readable_log_dir,
    shutdown_findings,
    topic_id_findings,
)
from kcompact.doctor.names import directory_findings
from kcompact.doctor.outage import outage_findings
from kcompact.doctor.partition import nothing_else_findings, partition_findings
from kcompact.doctor.quorum import quorum_findings
from kcompact.doctor.settings import (
    assumption_findings,
    broker_config_findings,
    broker_setting_findings,
    cleaner_findings,
    release_findings,
    topic_findings,
    unused_setting_findings,
)
from kcompact.errors import (
    CorruptDataError,
    KcompactError,
    KernelsUnavailableError,
    RefusedError,
    storage_errors,
)
from kcompact.format.names import CLUSTER_METADATA_TOPIC, parse_directory
from kcompact.format.properties import META_PROPERTIES, MetaProperties
from kcompact.log.directory import LogDir, PerLogDir, has_partitions, is_log_dir, is_one_partition
from kcompact.plan.discovery import canonical, has_others, partitions_in
from kcompact.plan.options import PlanOptions
from kcompact.plan.run_notes import option_notes
from kcompact.plan.setting_notes import wrong_name_notes
from kcompact.plan.walk import Planner, walk_partitions
from kcompact.remarks import RemarkCode


class Examination(NamedTuple):
    """What was found, the worst first, and whether all partitions of the log directories were examined."""

    findings: list[Finding]
    has_all: bool


def examine(
    paths: Sequence[Path],
    options: PlanOptions,
    *,
    reads_all: bool,
    memory_bytes: int,
) -> Examination:
    """Return what would stop a broker with these log directories, its cleaner or kcompact.

    With `reads_all` every byte is read, else names, small files, and the ends of segments and indexes.
    A path is a log directory, or a partition: then only that one is examined, with the files beside it. Raises
    RefusedError for a path that is no directory, ConfigError for a wrong option, ClusterUnreachableError.
    """
    of_kernels = list(_kernel_findings(canonical(paths[0]), reads_all=reads_all))
    with kernels.confirming_nothing() if any(each.stops for each in of_kernels) else nullcontext():
        findings, has_all = _examined(paths, options, reads_all=reads_all, memory_bytes=memory_bytes)
    return Examination(worst_first([*of_kernels, *findings]), has_all)


def _examined(paths: Sequence[Path], options: PlanOptions, *, reads_all: bool, memory_bytes: int) -> Examination:
    named = _named(paths)
    log_dirs = [*named]
    brokers = brokers_of(log_dirs, options.broker_config)
    if options.broker_config is not None:  # One that is found has none that a broker refuses.
        brokers = {each: replace(broker, config=with_refusals(broker.config)) for each, broker in brokers.items()}
    configs = {log_dir: broker.config for log_dir, broker in brokers.items()}
    findings = list(broker_setting_findings(configs))
    options = replace(options, include_internal=True, unclean=reads_all)
    findings += broker_config_findings(configs)
    findings += missing_log_dir_findings(brokers)
    identities: dict[Path, MetaProperties] = {}
    checkpoints = PerLogDir(readable_log_dir)
    inside: list[Path] = []
    for log_dir in log_dirs:
        try:
            with storage_errors(log_dir):
                meant = named[log_dir]
                inside += [each for each in partitions_in(log_dir) if not meant or each in meant]
                findings += _log_dir_findings(log_dir, identities, checkpoints)
                findings += quorum_findings(log_dir, brokers[log_dir])
        except KcompactError as problem:
            findings.append(of_error(problem, log_dir))
    partitions = list(filter(options.selection.has, inside))
    if not options.selection.selects_all and not partitions:
        raise options.selection.no_match(paths[0], inside)
    findings += identity_findings(identities, configs)
    findings += metadata_log_findings(brokers)
    findings += duplicate_findings(partitions, brokers)
    findings += topic_id_findings(partitions)
    wrong_names = [note for config in configs.values() if config.is_found for note in wrong_name_notes(config)]
    findings += unused_setting_findings([*option_notes(partitions, options), *wrong_names], log_dirs[0])
    findings += _all_partitions(
        partitions, options, brokers, checkpoints, reads_all=reads_all, memory_bytes=memory_bytes
    )
    return Examination(findings, has_all=not has_others(log_dirs, partitions))


def _named(paths: Sequence[Path]) -> dict[Path, list[Path]]:
    """Return the log directories, each with the partitions of it that are named; with none if all are meant.

    Raises RefusedError for what is no directory.
    """
    named: dict[Path, list[Path]] = {}
    for path in paths:
        directory = canonical(path)
        if not directory.is_dir():
            raise RefusedError(path=path, problem="not a directory" if directory.exists() else "no such directory")
        if _is_partition(directory):
            named.setdefault(directory.parent, []).append(directory)
    for directory in map(canonical, paths):
        if not _is_partition(directory):
            named[directory] = []
    return named


def _is_partition(directory: Path) -> bool:
    """Return whether a directory is a partition, also one that has lost its segments."""
    has_name = parse_directory(directory.name) is not None and directory.name != METADATA_DIRECTORY
    is_other = is_log_dir(directory) or has_partitions(directory)
    return is_one_partition(directory) or (has_name and is_log_dir(directory.parent) and not is_other)


def _kernel_findings(log_dir: Path, *, reads_all: bool) -> Iterator[Finding]:
    """Yield why the machine code cannot be used; with `reads_all` also the libraries that it cannot call."""
    try:
        kernels.library()
        for package in kernels.unusable_packages() if reads_all else ():
            problem = f"the machine code cannot call the library of the Python package {package}"
            yield Finding(
                code=RemarkCode.SLOW_CODEC, directory=log_dir, problem=f"{problem}; install its wheel of PyPI"
            )
    except KernelsUnavailableError as problem:
        yield Finding(code=RemarkCode.MACHINE_CODE, directory=log_dir, problem=f"machine code: {problem.problem}")


def _log_dir_findings(
    log_dir: Path, identities: dict[Path, MetaProperties], checkpoints: PerLogDir[LogDir]
) -> Iterator[Finding]:
    """Yield what is wrong with one log directory, and remember its identity. Raises StorageError, OSError."""
    yield from lock_findings(log_dir)
    properties, findings = meta_properties_findings(log_dir)
    if properties is not None:
        identities[log_dir] = properties
    yield from findings
    yield from checkpoint_findings(log_dir)
    yield from shutdown_findings(checkpoints.of_log_dir(log_dir))
    yield from disk_findings(log_dir)
    yield from access_findings(log_dir)
    yield from directory_findings(log_dir)


def _all_partitions(
    partitions: Sequence[Path],
    options: PlanOptions,
    brokers: Mapping[Path, Broker],
    checkpoints: PerLogDir[LogDir],
    *,
    reads_all: bool,
    memory_bytes: int,
) -> Iterator[Finding]:
    """Yield what is wrong with the partitions and with the settings of their topics. Raises ConfigError."""
    found_configs = options.configs_of(partitions, brokers=brokers)
    configs = {directory: _examined_by(each, directory) for directory, each in found_configs.items()}
    yield from cleaner_findings(configs)
    yield from assumption_findings(configs)
    yield from release_findings(configs, brokers)
    yield from outage_findings(configs, brokers, now_ms=options.now_ms)
    topics: dict[tuple[Path, str], Path] = {}
    for directory in partitions:
        if parsed := parse_directory(directory.name):
            topics.setdefault((directory.parent, parsed.topic_partition.topic), directory)
    for (log_dir, topic), directory in topics.items():
        if topic != CLUSTER_METADATA_TOPIC:
            yield from topic_findings(topic, configs[directory].config, log_dir)

    planner = Planner(partitions, options, configs)
    findings: list[Finding] = []

    def visit(directory: Path) -> None:
        if directory.name == METADATA_DIRECTORY:
            return
        problem = configs[directory].problem
        if problem is not None and not _is_of_the_log_dir(problem):
            findings.append(of_error(problem, directory))
        if nothing_else := list(nothing_else_findings(directory)):
            findings.extend(nothing_else)
            return
        plan, error = planner.plan_despite_damage(directory, checkpoints.of(directory))
        for each in partition_findings(plan, error, reads_all=reads_all, memory_bytes=memory_bytes):
            findings.append(each)  # One after the other: what was found before an error counts.

    def failed(directory: Path, problem: KcompactError) -> None:
        findings.append(of_error(problem, directory))

    for _ in walk_partitions(partitions, visit, failed):
        yield from findings
        findings.clear()


def _is_of_the_log_dir(problem: KcompactError) -> bool:
    """Return whether a problem of many partitions is said once: that of `meta.properties`, or of the metadata log."""
    if not isinstance(problem, CorruptDataError):
        return False
    file = Path(problem.file)
    return file.name == META_PROPERTIES or file.parent.name == METADATA_DIRECTORY


def _examined_by(configured: Configured, directory: Path) -> Configured:
    """Return the configuration of a partition; of the controller's own log without a policy, which it does not have."""
    if directory.name != METADATA_DIRECTORY:
        return configured
    return replace(configured, config=replace(configured.config, cleanup_policy=None))
