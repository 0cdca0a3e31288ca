"""The curves that describe a privacy loss: `PLD`, `PrivacyProfile`, `TradeOff`, and conversions between them.

Imports grids, mechanisms and numerics.
"""
