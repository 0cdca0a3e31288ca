"""The engine for few runs on a rare sample of a Gaussian: integrals along rays, which resolve losses of all sizes.

``ray`` has a run's loss on a ray of the complex plane, ``threshold`` drops losses that decide alone and counts them,
``contour`` has the sum of the other ones, ``bounds`` answers. The mathematics: docs/proofs/rays.md.
"""
