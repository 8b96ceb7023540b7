"""``python -m fairseq_plugins.tools.cli`` is ``fairseq-deep`` for when the console script is not on the path."""

from fairseq_plugins.tools.cli.main import run

if __name__ == "__main__":
    run()
