"""The command ``fairseq-deep``: fairseq's commands with the user directory given, and the commands of this package."""
