"""`NoCertificateError`: raised where no certificate is found within the limits of work."""


class NoCertificateError(ValueError):
    """There is no enclosure of that many digits within the limits of work."""
