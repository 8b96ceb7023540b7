"""The package of the translator's tests, for the commands that need one."""

from tests.translator.conftest import made as made
from tests.translator.conftest import package as package
