"""How delta and epsilon of a composition are bounded: `choose` sends a batch of questions to the engine that suits it.

``narrowing`` keeps the bounds of a batch while engines narrow them. ``run`` takes a batch through an engine, as
chunks in NumPy or as a program. ``one_run`` reads tails, ``contour`` integrates along a line in the complex plane
(Gaussians), ``rays`` along curves (few runs on rare samples), ``few_outcomes`` sums, ``few_runs`` composes law by law,
``discrete_laws`` encloses every loss between two laws on a grid. Imports pairs and numerics.
"""
