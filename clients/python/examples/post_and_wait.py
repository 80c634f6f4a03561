"""Posts the trip of travel.toml, shows its progress, and prints the results.

    python3 post_and_wait.py [fail_at]
"""

from __future__ import annotations

import pathlib
import sys

here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here.parent))  # without an installation

from conductord import Client, Unknown, new_id  # noqa: E402


def main() -> int:
    fail_at = sys.argv[1] if len(sys.argv) > 1 else ""
    with Client() as client:
        # With this id, a repeat of the call posts no second job.
        trip = {"id": new_id(), "store": {"pace": 0.1, "fail_at": fail_at}}
        try:
            job = client.post_flow(here / "travel.toml", **trip)
        except Unknown:
            job = client.post_flow(here / "travel.toml", **trip)
        print("posted", job.id)
        for event in client.watch(after="1-0", job=job.id):
            print(event["kind"])
            if event["kind"] == "completed":
                break
        job = client.wait(job.id, timeout=60)
        print(job.outcome, job.get("failure", {}).get("message", ""))
        for name, result in client.results(job).items():
            print(name, result)
    return 0 if job.outcome == "success" else 1


if __name__ == "__main__":
    sys.exit(main())
