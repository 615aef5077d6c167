"""Says what was read in one line: rows, and of each column its type and a sum that every order of rows has.

`python checksum.py` does it for an Arrow IPC stream on stdin.
"""

import sys
from collections.abc import Iterable

import pyarrow
import pyarrow.compute


def of(batches: Iterable[pyarrow.RecordBatch]) -> str:
    num_rows = 0
    sums: dict[str, tuple[str, int]] = {}
    for batch in batches:
        num_rows += batch.num_rows
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            type_name, column_sum = _sum(column)
            sums[name] = type_name, (sums.get(name, ("", 0))[1] + column_sum) % 2**64
    columns = (f"{name} {type_name} {column_sum:x}" for name, (type_name, column_sum) in sums.items())
    return ", ".join((f"{num_rows} rows", *columns))


def _sum(column: pyarrow.Array) -> tuple[str, int]:
    if column.null_count:
        raise ValueError("a null where the data has none")
    if pyarrow.types.is_decimal(column.type):
        total = pyarrow.compute.sum(column).as_py() or 0
        return f"decimal({column.type.precision},{column.type.scale})", int(total * 10**column.type.scale)
    if pyarrow.types.is_integer(column.type):
        return str(column.type), _sum_integers(column)
    if pyarrow.types.is_date32(column.type):
        return "date", _sum_integers(column.view(pyarrow.int32()))
    if pyarrow.types.is_timestamp(column.type):
        # DuckDB takes milliseconds out of Parquet files as microseconds, whose values are as wide.
        return "timestamp", _sum_integers(column.cast(pyarrow.timestamp("us")).view(pyarrow.int64()))
    if pyarrow.types.is_float64(column.type):
        return str(column.type), _sum_integers(column.view(pyarrow.int64()))  # bits: a last digit wrong is wrong
    # Texts have several layouts: the sum of their bytes, and how many there are.
    texts = column.cast(pyarrow.large_string())
    num_bytes = pyarrow.compute.sum(pyarrow.compute.binary_length(texts)).as_py() or 0
    _, offsets_buffer, bytes_buffer = texts.buffers()
    offsets = pyarrow.Array.from_buffers(pyarrow.int64(), len(texts) + 1, [None, offsets_buffer], offset=texts.offset)
    start = offsets[0].as_py() if len(texts) else 0
    contents = pyarrow.Array.from_buffers(pyarrow.uint8(), num_bytes, [None, bytes_buffer], offset=start)
    return "text", num_bytes * 1_000_003 + (pyarrow.compute.sum(contents).as_py() or 0)


def _sum_integers(column: pyarrow.Array) -> int:
    return pyarrow.compute.sum(column).as_py() or 0  # of 64 bits, and wraps


if __name__ == "__main__":
    with pyarrow.ipc.open_stream(sys.stdin.buffer) as stream:
        print(of(stream))
