"""Times reading a topic of bids up to its end: a bare loop over librdkafka, segue, and Flink; prints one table.

What is compared:
- One broker, one topic for each format, four partitions, uncompressed, from the page cache. Everybody checks CRCs, and must
  find all the rows.
- Everybody has the same two CPUs, and the broker beside them (more are left to the broker, where there are more).
- Each measurement is a new process. They alternate, and medians count.
- The bare loop takes messages by `rd_kafka_consume_batch_queue` and adds up the lengths of their values. segue decodes
  to Arrow, with positions, by its library. Both are `benches/kafka`, have the same settings of librdkafka, and are timed
  from within, connecting included.
- Flink runs in a local cluster in one process (flink/), with parallelism 2 and reused objects. What it decodes to, rows as
  Flink SQL has them or plain objects, is what was faster in the first round. Its start is included once, and once only the time from
  its first row to its last counts.
- "by CPU time" compares CPU seconds: where others use the machine too, it is the steadier one. Flink's has Java's start
  and compiling in it.
"""

import argparse
import json
import os
import statistics
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from compare import Failed, machine, output, print_table, two_cpus

NUM_ROWS = 5_000_000
ROW_BYTES = {"csv": 56, "json": 90}
HEAD = (
    "work", "bare loop M rows/s", "segue M rows/s", "Flink M rows/s", "without its start",
    "segue to bare loop", "by CPU time", "segue to Flink", "without its start", "by CPU time",
)  # fmt: skip


@dataclass
class Measured:
    """What one contestant needed, round by round."""

    rows: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    first_to_last: list[float] = field(default_factory=list)

    def add(self, answer: str) -> None:
        for name, value in json.loads(answer.splitlines()[-1]).items():
            getattr(self, name).append(value)

    def median(self, quantity: str) -> float:
        return statistics.median(getattr(self, quantity))


class Contest:
    """One topic, and everybody who reads it."""

    def __init__(self, given: argparse.Namespace, format: str, num_rows: int) -> None:
        self.bench, self.flink = given.bench, given.flink
        self.format = format
        self.num_rows = num_rows
        self.topic = f"bids-{format}"

    def run(self, num_rounds: int) -> tuple[str, ...]:
        self._ask_bench("make")
        measured = {name: Measured() for name in ("bare", "segue", "rows", "pojos")}
        ways = ["rows", "pojos"]
        for _ in range(num_rounds):
            for name in ("bare", "segue"):
                measured[name].add(self._ask_bench(name))
            for way in ways:
                measured[way].add(self._ask_flink(way))
            ways = [min(ways, key=lambda way: measured[way].median("first_to_last"))]
        for name, of in measured.items():
            if wrong := [rows for rows in of.rows if rows != self.num_rows]:
                raise Failed(f"{self.topic}, {name}: {wrong[0]} rows of {self.num_rows}")
        return self._cells(measured["bare"], measured["segue"], measured[ways[0]], ways[0])

    def _cells(self, bare: Measured, segue: Measured, flink: Measured, way: str) -> tuple[str, ...]:
        def rate(of: Measured, quantity: str = "seconds") -> str:
            return f"{self.num_rows / of.median(quantity) / 1e6:.2f}"

        def ratio(of: Measured, quantity: str, to: str | None = None) -> str:
            return f"{of.median(quantity) / segue.median(to or quantity):.2f}x"

        title = f"Kafka, {self.format.upper()} bids of {ROW_BYTES[self.format]} bytes: {self.num_rows / 1e6:g} M rows; Flink to {way}"
        return (
            title, rate(bare), rate(segue), rate(flink), rate(flink, "first_to_last"),
            ratio(bare, "seconds"), ratio(bare, "cpu_seconds"),
            ratio(flink, "seconds"), ratio(flink, "first_to_last", "seconds"), ratio(flink, "cpu_seconds"),
        )  # fmt: skip

    def _ask_bench(self, what: str) -> str:
        return output([self.bench, what, self.topic, self.format, str(self.num_rows)])

    def _ask_flink(self, way: str) -> str:
        java = Path(os.environ["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in os.environ else "java"
        # The collector that disturbs least on two CPUs; from Flink's log only errors.
        options = ["-XX:+UseParallelGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
        class_path = f"{self.flink}/classes:{self.flink}/jars/*"
        words = [os.environ["SEGUE_TEST_BROKER"], self.topic, self.format, way, "2"]
        return output([java, *options, "-cp", class_path, "segue.ReadTopic", *words])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benches/compare/run kafka", description=__doc__.splitlines()[0])
    parser.add_argument("--bench", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--flink", required=True, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    given = arguments()
    num_rows = round(NUM_ROWS * float(os.environ.get("SEGUE_COMPARE_SCALE", "1")))
    num_rounds = int(os.environ.get("SEGUE_COMPARE_ROUNDS", "3"))
    began = time.monotonic()
    two_cpus()
    rows = []
    for format in ROW_BYTES:
        print(f"measuring {format}", file=sys.stderr, flush=True)
        rows.append(Contest(given, format, num_rows).run(num_rounds))
    print_table(HEAD, rows)
    seconds, load = time.monotonic() - began, os.getloadavg()[0]
    print(f"\nFlink 2.2.0, its Kafka connector 5.0.0; {machine()}")
    print(f"medians of {num_rounds} rounds; {seconds:.0f} s in all, load {load:.1f} at the end")


if __name__ == "__main__":
    try:
        main()
    except Failed as error:
        sys.exit(f"error: {error}")
