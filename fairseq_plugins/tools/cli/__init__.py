"""The command ``fairseq-deep``: fairseq's commands with the user directory set, and the commands of this package."""
