"""The engine for every pair: the privacy loss between two discrete laws, composed on a contour."""
