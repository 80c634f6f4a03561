"""A worker that imports the lines of a file, and continues after the last imported line.

    python3 clients/python/examples/import_rows.py
"""

from __future__ import annotations

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))  # without an installation

from conductord import Client, Context, Worker  # noqa: E402

worker = Worker(Client(), ttl=3)  # after a kill, another worker gets the step this soon


@worker.step("import-rows")
def import_rows(source: str, target: str, context: Context) -> dict:
    lines = pathlib.Path(source).read_text().splitlines()
    begun = context.once("begun", lambda: context.attempt)
    row = context.checkpoints.get("row", 0)
    for line in lines[row:]:
        with open(target, "a") as file:  # a real step writes to a database, with row as an idempotency key
            file.write(line + "\n")
        context.sleep(0.03)
        row += 1
        context.progress(row, len(lines))
        context.checkpoint("row", row)  # after a kill, only the lines after this one are imported again
    last = context.last_progress
    return {"rows": row, "begun": begun, "of": last.total if last else None}


if __name__ == "__main__":
    worker.run()
