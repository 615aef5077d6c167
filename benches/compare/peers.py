"""Reads the files of a work with one peer, in a process of its own: python peers.py MODE PEER WORK FOLDER THREADS

Mode `time` prints rows, seconds and CPU seconds of one full decode as a line of JSON. The clock starts when everything
is imported and the peer is set up, and stops when its last Arrow batch has been taken. Mode `check` prints what was
read instead (checksum.py).

Each peer is told the types, so that none infers, and is asked in the fastest of its ways that we found:
- DuckDB: a reader of Arrow batches; as fast are tables, string views and `preserve_insertion_order = false`.
- Polars: a frame by the streaming engine; batch by batch is slower. Timestamps in JSON are read as text and then
  parsed, which takes a tenth of what reading them as timestamps takes.
- DataFusion: the stream of a plan with as many partitions as threads, rows in no order, texts as string views;
  collecting is slower.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterable

import pyarrow

import checksum
from works import WORKS, Work

Batches = Iterable[pyarrow.RecordBatch]


def duckdb(work: Work, folder: str, num_threads: int) -> Callable[[], Batches]:
    import duckdb

    connection = duckdb.connect()
    connection.execute(f"SET threads = {num_threads}")
    duckdb_types = {"STRING": "VARCHAR", "TIMESTAMP(3)": "TIMESTAMP_MS"}
    columns = ", ".join(f"'{name}': '{duckdb_types.get(sql_type, sql_type)}'" for name, sql_type in work.columns)
    files = f"'{folder}/*.{work.format}'"
    table = {
        "csv": f"""read_csv({files}, columns = {{{columns}}}, auto_detect = false, header = true,
                            delim = ',', quote = '"', escape = '"')""",
        "json": f"read_json({files}, columns = {{{columns}}}, format = 'newline_delimited')",
        "parquet": f"read_parquet({files})",
    }[work.format]
    return lambda: connection.execute(f"SELECT * FROM {table}").to_arrow_reader(100_000)


def polars(work: Work, folder: str, num_threads: int) -> Callable[[], Batches]:
    os.environ["POLARS_MAX_THREADS"] = str(num_threads)  # read at the import
    import polars

    polars_types = {
        "INT": polars.Int32,
        "BIGINT": polars.Int64,
        "DOUBLE": polars.Float64,
        "DECIMAL(15,2)": polars.Decimal(15, 2),
        "DATE": polars.Date,
        "TIMESTAMP(3)": polars.Datetime("ms"),
        "STRING": polars.String,
    }
    schema = {name: polars_types[sql_type] for name, sql_type in work.columns}
    files = f"{folder}/*.{work.format}"

    def scan_ndjson() -> polars.LazyFrame:
        times = [name for name, sql_type in work.columns if sql_type == "TIMESTAMP(3)"]
        parsed = polars.col(times).str.to_datetime("%Y-%m-%d %H:%M:%S%.3f", time_unit="ms")
        return polars.scan_ndjson(files, schema=schema | dict.fromkeys(times, polars.String)).with_columns(parsed)

    def decode() -> Batches:
        frame = {
            "csv": lambda: polars.scan_csv(files, schema=schema),
            "json": scan_ndjson,
            "parquet": lambda: polars.scan_parquet(files),
        }[work.format]()
        # The newest level of compatibility copies nothing.
        return frame.collect(engine="streaming").to_arrow(compat_level=polars.CompatLevel.newest()).to_batches()

    return decode


def datafusion(work: Work, folder: str, num_threads: int) -> Callable[[], Batches]:
    from datafusion import CsvReadOptions, SessionConfig, SessionContext

    context = SessionContext(SessionConfig().with_target_partitions(num_threads))
    arrow_types = {
        "INT": pyarrow.int32(),
        "BIGINT": pyarrow.int64(),
        "DOUBLE": pyarrow.float64(),
        "DECIMAL(15,2)": pyarrow.decimal128(15, 2),
        "DATE": pyarrow.date32(),
        "TIMESTAMP(3)": pyarrow.timestamp("ms"),
        "STRING": pyarrow.string_view(),
    }
    schema = pyarrow.schema([(name, arrow_types[sql_type]) for name, sql_type in work.columns])
    csv_options = CsvReadOptions(schema=schema, newlines_in_values=work.newlines_in_values)

    def decode() -> Batches:
        frame = {
            "csv": lambda: context.read_csv(folder, options=csv_options),
            "json": lambda: context.read_json(folder, schema=schema),
            "parquet": lambda: context.read_parquet(folder),
        }[work.format]()
        return (batch.to_pyarrow() for batch in frame.execute_stream())

    return decode


PEERS = {"duckdb": duckdb, "polars": polars, "datafusion": datafusion}


def main(mode: str, peer: str, work: str, folder: str, num_threads: str) -> None:
    decode = PEERS[peer](WORKS[work], folder, int(num_threads))
    if mode == "check":
        print(checksum.of(decode()))
        return
    start, cpu_start = time.perf_counter(), time.process_time()
    num_rows = sum(batch.num_rows for batch in decode())
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
    print(json.dumps({"rows": num_rows, "seconds": seconds, "cpu_seconds": cpu_seconds}))


if __name__ == "__main__":
    main(*sys.argv[1:])
