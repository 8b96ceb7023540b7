"""``python -m fairseq_plugins`` prints the directory to pass to ``--user-dir``."""

from __future__ import annotations

from pathlib import Path

if __name__ == "__main__":
    print(Path(__file__).resolve().parent)
