"""Errors a user can meet. Anything else that escapes is a bug and keeps its traceback.

LlmcalcError
|-- SourceError            a config could not be had
|   |-- NotFoundError          no such model, file, repository or revision
|   |-- GatedError             the repository wants a token or a licence
|   |-- OfflineError           no network, or offline mode without a cached file
|   `-- MalformedConfigError   it is there, and it is not a config
|-- UnsupportedError       it is a config, and we do not know this part of it
|   |-- UnsupportedArchitectureError
|   |-- UnsupportedLayerError
|   `-- UnsupportedFormatError
|-- MeasureError           this machine could not be looked at
|   `-- NoGpuError              no NVIDIA driver, or none that answers
|-- InvalidInputError      an option or a config field holds an impossible value
`-- OutputError            the result could not be written
"""

from __future__ import annotations


class LlmcalcError(Exception):
    """What was asked, what was found, and in ``hint`` what to do next."""

    code = "error"

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class SourceError(LlmcalcError):
    code = "source"


class NotFoundError(SourceError):
    code = "not-found"


class GatedError(SourceError):
    code = "gated"


class OfflineError(SourceError):
    code = "offline"


class MalformedConfigError(SourceError):
    code = "malformed-config"


class UnsupportedError(LlmcalcError):
    code = "unsupported"


class UnsupportedArchitectureError(UnsupportedError):
    code = "unsupported-architecture"


class UnsupportedLayerError(UnsupportedError):
    code = "unsupported-layer"


class UnsupportedFormatError(UnsupportedError):
    code = "unsupported-format"


class InvalidInputError(LlmcalcError):
    code = "invalid-input"


class MeasureError(LlmcalcError):
    code = "measure"


class NoGpuError(MeasureError):
    code = "no-gpu"


class OutputError(LlmcalcError):
    code = "output"
