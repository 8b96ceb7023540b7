"""``python -m fairseq_plugins.demo.corpus OUT``: write the demo corpus."""

import sys

from .generate import main

sys.exit(main())
