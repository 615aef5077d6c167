"""What is read: names, columns and files of each work, said once for whoever makes, reads or prints it."""

from dataclasses import dataclass

BIDS = (("id", "INT"), ("bid_price", "DOUBLE"), ("order_time", "TIMESTAMP(3)"))
TEXTS = (("a", "STRING"), ("b", "STRING"), ("c", "STRING"))
LINEITEM = (
    ("l_orderkey", "BIGINT"),
    ("l_partkey", "BIGINT"),
    ("l_suppkey", "BIGINT"),
    ("l_linenumber", "INT"),
    ("l_quantity", "DECIMAL(15,2)"),
    ("l_extendedprice", "DECIMAL(15,2)"),
    ("l_discount", "DECIMAL(15,2)"),
    ("l_tax", "DECIMAL(15,2)"),
    ("l_returnflag", "STRING"),
    ("l_linestatus", "STRING"),
    ("l_shipdate", "DATE"),
    ("l_commitdate", "DATE"),
    ("l_receiptdate", "DATE"),
    ("l_shipinstruct", "STRING"),
    ("l_shipmode", "STRING"),
    ("l_comment", "STRING"),
)


@dataclass(frozen=True)
class Work:
    """One line of the table."""

    name: str
    title: str
    format: str  # also the suffix of its files
    columns: tuple[tuple[str, str], ...]
    num_rows: int  # at scale 1
    files: str  # how data.py makes them
    newlines_in_values: bool = False
    by_default: bool = True

    @property
    def schema(self) -> str:
        return ", ".join(f"{name} {sql_type}" for name, sql_type in self.columns)


WORKS = {
    work.name: work
    for work in (
        Work("bids", "CSV bids", "csv", BIDS, 10_000_000, "bids"),
        Work("single", "CSV bids, one file", "csv", BIDS, 38_000_000, "one file of bids"),
        Work("lineitem", "CSV TPC-H lineitem, 16 columns", "csv", LINEITEM, 6_000_000, "lineitem"),
        Work("quoted", "CSV text, quotes and newlines", "csv", TEXTS, 1_250_000, "texts", newlines_in_values=True),
        Work("ndjson", "NDJSON bids", "json", BIDS, 4_000_000, "bids"),
        Work("bids-parquet", "Parquet bids (zstd)", "parquet", BIDS, 10_000_000, "bids"),
        Work("lineitem-parquet", "Parquet lineitem (snappy)", "parquet", LINEITEM, 6_000_000, "lineitem"),
        # Prices with two decimals instead of all digits of a DOUBLE: shorter numbers favour other parsers.
        Work("cents", "CSV bids, prices in cents", "csv", BIDS, 10_000_000, "bids in cents", by_default=False),
    )
}
