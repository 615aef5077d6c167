"""Makes the data, each work's once: from seeds, so that everybody measures the same bytes."""

import random
import shutil
import subprocess
import sys
from pathlib import Path

from works import Work

# Ids of up to ten digits and prices with all 16 digits that a DOUBLE has: 56 bytes a row in CSV, 90 in JSON.
LONG_PRICES = ("fields.id.min=0", "fields.bid_price.min=1", "fields.bid_price.max=1e15")
CENTS = ("fields.id.min=0", "fields.bid_price.min=1", "fields.bid_price.max=10000")
ROLL_SIZE = "64mb"  # several files, none of them short

WORDS = (
    "alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel", "india", "juliett", "kilo", "lima",
    "mike", "november", "oscar", "papa", "quebec", "romeo", "sierra", "tango", "uniform", "victor", "whiskey", "x-ray",
)  # fmt: skip
NUM_TEXTS = 50_000  # different ones; drawn from again and again, since Python is slow
TEXT_ROWS_OF_A_FILE = 156_250


def make(work: Work, folder: Path, scale: float, segue: str) -> Path:
    """Returns the folder with the files of a work, made first if they aren't there."""
    done = folder / f"scale-{scale:g}" / work.name
    if done.exists():
        return done
    print(f"making {done}", file=sys.stderr, flush=True)
    half_done = done.with_name(f"_{work.name}")
    shutil.rmtree(half_done, ignore_errors=True)
    half_done.mkdir(parents=True)
    num_rows = max(1, round(work.num_rows * scale))
    if work.files == "bids":
        _bids(segue, work, num_rows, LONG_PRICES, "--to", f"{work.format}:{half_done}", "--roll-size", ROLL_SIZE)
    elif work.files == "bids in cents":
        _bids(segue, work, num_rows, CENTS, "--to", f"{work.format}:{half_done}", "--roll-size", ROLL_SIZE)
    elif work.files == "one file of bids":
        with open(half_done / "bids.csv", "wb") as file:
            _bids(segue, work, num_rows, LONG_PRICES, "--output", "csv", stdout=file)
    elif work.files == "lineitem":
        tpchgen = Path(sys.executable).with_name("tpchgen-cli")
        command = [tpchgen, work.format, "--quiet", "--tables", "lineitem"]
        subprocess.run([*command, "--scale-factor", f"{scale:g}", "--output-dir", half_done], check=True)
    elif work.files == "texts":
        _texts(half_done, num_rows)
    half_done.rename(done)
    return done


def _bids(segue: str, work: Work, num_rows: int, options: tuple[str, ...], *to: str, stdout=None) -> None:
    set_options = [word for option in options for word in ("-o", option)]
    command = [segue, "gen", "--quiet", "--schema", work.schema, "--rows", str(num_rows), *set_options, *to]
    subprocess.run(command, check=True, stdout=stdout)


def _texts(folder: Path, num_rows: int) -> None:
    """Three texts a row of about 75 bytes each, most of them in quotes, as RFC 4180 has it.

    Several files: newlines in values keep DataFusion from reading one file with two threads.
    """
    rng = random.Random(42)
    texts = [_field(_text(rng)) for _ in range(NUM_TEXTS)]
    for number, start in enumerate(range(0, num_rows, TEXT_ROWS_OF_A_FILE)):
        num_file_rows = min(TEXT_ROWS_OF_A_FILE, num_rows - start)
        with open(folder / f"part-{number}.csv", "w", newline="") as file:
            file.write("a,b,c\n")
            for _ in range(num_file_rows):
                file.write(",".join(rng.choices(texts, k=3)) + "\n")


def _text(rng: random.Random) -> str:
    words: list[str] = []
    num_chars = 0
    while num_chars < 70:
        word = rng.choice(WORDS)
        kind = rng.random()
        if kind < 0.06:
            word = f'"{word}"'
        elif kind < 0.12:
            word += ","
        elif kind < 0.16:
            word += "\nx"
        words.append(word)
        num_chars += len(word) + 1
    return " ".join(words)


def _field(text: str) -> str:
    if any(char in text for char in '",\n'):
        return '"' + text.replace('"', '""') + '"'
    return text
