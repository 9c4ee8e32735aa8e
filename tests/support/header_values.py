"""Headers of batches as values, without records."""

from __future__ import annotations

from kcompact.format.batch import CONTROL_BIT, DELETE_HORIZON_BIT, Header

NOW = 1000


def header(
    *,
    base_offset: int = 10,
    last_offset: int = 12,
    producer_id: int = 7,
    epoch: int = 1,
    control: bool = False,
    horizon: int | None = None,
    records: int = 1,
) -> Header:
    return Header(
        base_offset=base_offset,
        length=49,
        partition_leader_epoch=0,
        magic=2,
        crc=0,
        attributes=(CONTROL_BIT if control else 0) | (0 if horizon is None else DELETE_HORIZON_BIT),
        last_offset_delta=last_offset - base_offset,
        base_timestamp=0 if horizon is None else horizon,
        max_timestamp=0,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=0,
        records_count=records,
    )
