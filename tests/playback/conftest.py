"""What all tests of this folder run under."""

from tracing.conftest import _one_thread  # noqa: F401 - models are as small here
