"""Times the full decode of files to typed Arrow columns, segue beside its peers, and prints one table.

What is compared:
- Everybody has two threads and the same two CPUs (more are taken away from all), reads the same files from a warm page
  cache, and makes columns of the same types. Before the clock, each reads the whole work once, and rows, types and a
  sum of each column must be the same for all.
- Each measurement is a new process. They alternate: every round asks each contestant once, and the best round of each
  counts. A peer that took over twice the time, and CPU time, of the best peer in the first round isn't asked again.
- Peers are timed from within, without their start and imports (peers.py). segue is timed from outside, its start
  included, by its command line: `segue read FOLDER --output none`, rows in order, with positions.
- "to best peer" is the speed of segue as a multiple of that of the fastest peer; "by CPU time" the same for bytes a CPU
  second: where others use the machine too, it is the steadier one.
- "1→2 threads" is what the second thread of segue that decodes gains; with one, reading and cutting have the other CPU
  for themselves. "1→2 CPUs" is two threads on both CPUs beside one on one.
- "peak MiB" is the resident memory of the whole segue process, of the timed runs (`--memory 256mb`) and of one at 48mb.

This process imports nothing large: Linux counts the memory of whoever starts a process in the peak of that process.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import data
from works import WORKS, Work

HERE = Path(__file__).parent
PEERS = {"duckdb": "DuckDB", "polars": "Polars", "datafusion": "DataFusion"}
NUM_THREADS = 2
TIMEOUT_SECONDS = 600
HOPELESS = 2.0


class Failed(Exception):
    """Somebody couldn't read a work, or read it wrongly."""


@dataclass(frozen=True)
class Measurement:
    seconds: float
    cpu_seconds: float
    peak_bytes: int = 0


class Best:
    """The best of what was measured, each quantity for itself."""

    def __init__(self) -> None:
        self.seconds = float("inf")
        self.cpu_seconds = float("inf")
        self.peak_bytes = 0

    def add(self, measured: Measurement) -> None:
        self.seconds = min(self.seconds, measured.seconds)
        self.cpu_seconds = min(self.cpu_seconds, measured.cpu_seconds)
        self.peak_bytes = max(self.peak_bytes, measured.peak_bytes)


class Contest:
    """One work: its files, and everybody who reads them."""

    def __init__(self, work: Work, folder: Path, segue: str) -> None:
        self.work = work
        self.folder = folder
        self.segue = segue
        files = list(folder.glob(f"*.{work.format}"))
        self.num_files = len(files)
        self.num_bytes = sum(file.stat().st_size for file in files)
        self.problems: list[str] = []

    def run(self, num_rounds: int) -> "Row":
        num_rows, peers = self._check()
        best = {name: Best() for name in (*peers, "segue", "segue, 1 thread", "segue, 1 CPU")}
        for round_number in range(num_rounds):
            for peer in peers:
                if round_number == 0 or not self._is_hopeless(best, peers, peer):
                    best[peer].add(self._time_peer(peer, num_rows))
            best["segue"].add(self._time_segue(NUM_THREADS))
            best["segue, 1 thread"].add(self._time_segue(1))
            best["segue, 1 CPU"].add(self._time_segue(1, num_cpus=1))
        small = self._time_segue(NUM_THREADS, memory="48mb")
        return Row(self, num_rows, peers, best, small)

    def _check(self) -> tuple[int, list[str]]:
        """What segue reads, and the peers that can read it at all."""
        with subprocess.Popen([*self._segue(NUM_THREADS), "--output", "arrow"], stdout=subprocess.PIPE) as segue:
            expected = output([sys.executable, HERE / "checksum.py"], stdin=segue.stdout)
        if segue.returncode:
            raise Failed(f"segue ended with {segue.returncode}")
        peers = []
        for peer in PEERS:
            try:
                found = output(self._peer("check", peer))
            except Failed as error:
                self.problems.append(f"{self.work.name}: {PEERS[peer]}: {error}")
                continue
            peers.append(peer)
            if found != expected:
                self.problems.append(f"{self.work.name}: segue read {expected}\n  but {PEERS[peer]} {found}")
        return int(expected.split()[0]), peers

    @staticmethod
    def _is_hopeless(best: dict[str, Best], peers: list[str], peer: str) -> bool:
        return all(
            getattr(best[peer], quantity) > HOPELESS * min(getattr(best[other], quantity) for other in peers)
            for quantity in ("seconds", "cpu_seconds")
        )

    def _time_peer(self, peer: str, num_rows: int) -> Measurement:
        measured = json.loads(output(self._peer("time", peer)))
        if measured["rows"] != num_rows:
            raise Failed(f"{PEERS[peer]} read {measured['rows']} rows of {num_rows}")
        return Measurement(measured["seconds"], measured["cpu_seconds"])

    def _time_segue(self, num_threads: int, memory: str = "256mb", num_cpus: int = NUM_THREADS) -> Measurement:
        start = time.perf_counter()
        command = [*self._segue(num_threads), "--output", "none", "--memory", memory]
        child = subprocess.Popen(command, preexec_fn=lambda: leave_cpus(num_cpus))
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - start
        child.returncode = os.waitstatus_to_exitcode(status)  # it is waited for already
        if child.returncode:
            raise Failed(f"segue ended with {child.returncode}")
        bytes_of_unit = 1 if sys.platform == "darwin" else 1024
        return Measurement(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * bytes_of_unit)

    def _segue(self, num_threads: int) -> list[str]:
        # Parquet files say their types themselves.
        schema = [] if self.work.format == "parquet" else ["--schema", self.work.schema]
        return [self.segue, "read", str(self.folder), *schema, "--threads", str(num_threads), "--quiet"]

    def _peer(self, mode: str, peer: str) -> list[str]:
        return [sys.executable, str(HERE / "peers.py"), mode, peer, self.work.name, str(self.folder), str(NUM_THREADS)]


class Row:
    """What was found out about one work, as a line of the table."""

    HEAD = (
        "work", "MB", *(f"{name} MB/s" for name in PEERS.values()),
        "segue MB/s", "to best peer", "by CPU time", "1→2 threads", "1→2 CPUs", "peak MiB at 256mb", "at 48mb",
    )  # fmt: skip

    def __init__(
        self, contest: Contest, num_rows: int, peers: list[str], best: dict[str, Best], small: Measurement
    ) -> None:
        megabytes = contest.num_bytes / 1e6
        segue = best["segue"]
        files = "1 file" if contest.num_files == 1 else f"{contest.num_files} files"
        title = f"{contest.work.title}: {num_rows / 1e6:.3g} M rows, {files}"

        def speed(peer: str) -> str:
            return f"{megabytes / best[peer].seconds:.0f}" if peer in peers else "fails"

        def ratio(quantity: str) -> str:
            if not peers:
                return "-"
            return f"{min(getattr(best[peer], quantity) for peer in peers) / getattr(segue, quantity):.2f}x"

        self.cells = (
            title, f"{megabytes:.0f}", *map(speed, PEERS),
            f"{megabytes / segue.seconds:.0f}", ratio("seconds"), ratio("cpu_seconds"),
            f"{best['segue, 1 thread'].seconds / segue.seconds:.2f}x",
            f"{best['segue, 1 CPU'].seconds / segue.seconds:.2f}x",
            f"{segue.peak_bytes / 2**20:.0f}", f"{small.peak_bytes / 2**20:.0f}",
        )  # fmt: skip


def output(command: list, stdin=None) -> str:
    """What a command prints."""
    try:
        done = subprocess.run(command, stdin=stdin, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise Failed(f"not done after {TIMEOUT_SECONDS} s") from error
    if done.returncode:
        last_line = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise Failed(f"ended with {done.returncode}: {last_line[:300]}")
    return done.stdout.strip()


def two_cpus() -> None:
    """Leaves this process and its children two CPUs, of different cores if there are any."""
    if not hasattr(os, "sched_setaffinity"):
        return  # not on Linux: only the numbers of threads are equal then
    allowed = sorted(os.sched_getaffinity(0))
    first_of_its_core = {}
    for cpu in allowed:
        siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        core = siblings.read_text() if siblings.exists() else str(cpu)
        first_of_its_core.setdefault(core, cpu)
    cpus = list(first_of_its_core.values())
    os.sched_setaffinity(0, (cpus if len(cpus) >= NUM_THREADS else allowed)[:NUM_THREADS])


def leave_cpus(num_cpus: int) -> None:
    """Leaves this process only so many of its CPUs, where that can be said."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:num_cpus])


def machine() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        cpu = platform.machine()
    return f"{platform.system()} {platform.machine()}, {cpu}, {NUM_THREADS} CPUs used"


def print_table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    widths = [max(len(cells[i]) for cells in (head, *rows)) for i in range(len(head))]

    def line(cells: tuple[str, ...]) -> str:
        numbers = (cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True))
        return f"| {cells[0].ljust(widths[0])} | {' | '.join(numbers)} |"

    print(line(head))
    print(f"|{'-' * (widths[0] + 2)}|{'|'.join('-' * (width + 1) + ':' for width in widths[1:])}|")
    for cells in rows:
        print(line(cells))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benches/compare/run", description=__doc__.splitlines()[0])
    parser.add_argument("names", metavar="NAME", nargs="*", help="the works to run; all by default")
    parser.add_argument("--list", action="store_true", help="says which works there are")
    parser.add_argument("--segue", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--folder", required=True, type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if unknown := [name for name in given.names if name not in WORKS]:
        parser.error(f"no work is called {unknown[0]}; there are {', '.join(WORKS)}")
    return given


def main() -> int:
    given = arguments()
    if given.list:
        for work in WORKS.values():
            print(f"{work.name:17} {work.title}{'' if work.by_default else ' (only by name)'}")
        print(f"{'kafka':17} a topic, beside librdkafka and Flink (alone, and only by name)")
        return 0
    scale = float(os.environ.get("SEGUE_COMPARE_SCALE", "1"))
    num_rounds = int(os.environ.get("SEGUE_COMPARE_ROUNDS", "3"))
    began = time.monotonic()
    segue_version = output([given.segue, "--version"]).split(" (")[0]
    two_cpus()
    rows: list[Row] = []
    problems: list[str] = []
    for name in given.names or [work.name for work in WORKS.values() if work.by_default]:
        folder = data.make(WORKS[name], given.folder / "data", scale, given.segue)
        print(f"measuring {name}", file=sys.stderr, flush=True)
        contest = Contest(WORKS[name], folder, given.segue)
        try:
            rows.append(contest.run(num_rounds))
        except Failed as error:
            contest.problems.append(f"{name}: {error}")
        problems += contest.problems
    print_table(Row.HEAD, [row.cells for row in rows])
    versions = (segue_version, *(f"{name} {version(peer)}" for peer, name in PEERS.items()))
    seconds, load = time.monotonic() - began, os.getloadavg()[0]
    print(f"\n{', '.join(versions)}; {machine()}")
    print(f"best of {num_rounds} rounds, page cache warm; {seconds:.0f} s in all, load {load:.1f} at the end")
    if load > 2 * NUM_THREADS:
        print("others used the machine: the ratios by CPU time hold, that of 1 to 2 threads doesn't")
    for problem in problems:
        print(f"PROBLEM {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (Failed, subprocess.CalledProcessError) as error:
        sys.exit(f"error: {error}")
