"""The contour engine: delta as an integral of the moment generating function of the privacy loss, for Gaussians."""
