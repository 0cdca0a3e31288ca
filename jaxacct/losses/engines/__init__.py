"""How delta and epsilon of a composition are bounded: `choose` sends a batch of questions to the engine that suits it.

``narrowing`` keeps the bounds of a batch while engines narrow them. ``run`` takes a batch through an engine, in
chunks. ``one_run`` reads tails, ``contour`` (Gaussians) and ``discrete_laws`` (all pairs, by
their ``lines`` or by cells) invert transforms, and ``laws`` composes law by law what transforms leave wide. Imports
pairs and numerics.
"""
