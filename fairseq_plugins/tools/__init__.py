"""Programs around the plugin: text, trainings from YAML files, evaluation, translators, diagnostics, the command line.

Training and generation with fairseq's own commands need nothing of this directory, and nothing outside of it imports
from here. Where it is present, :func:`register` adds the recorder and the divergence guard to fairseq.
"""


def register() -> None:
    """Register the recorder's criteria and install the divergence guard; a second call does nothing."""
    # Imported here: both import fairseq.
    from fairseq_plugins.tools.observe import recorder
    from fairseq_plugins.tools.observe.guard import installing as guard

    guard.install()  # before the recorder, which makes flags of the guard's settings
    recorder.register()
