"""``python -m fairseq_plugins`` prints the directory to pass to ``--user-dir``."""

from pathlib import Path

if __name__ == "__main__":
    print(Path(__file__).resolve().parent)
