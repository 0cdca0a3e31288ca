"""How delta and epsilon of a composition are bounded: `choose` sends a batch of questions to the engine that suits it.

``narrowing`` keeps the bounds of a batch while engines narrow them. ``one_run`` reads tails, ``inversion`` inverts
transforms, which ``lines`` has of each family, and ``laws`` composes law by law what the inversion leaves wide. Imports
pairs and numerics.
"""
