"""The error of a question that has no certificate."""


class NoCertificateError(ValueError):
    """There is no enclosure of that many digits within the limits of work."""
