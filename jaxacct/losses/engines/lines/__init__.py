"""E_P[exp(z L)] of mechanisms on a vertical line of the complex plane, with certified errors; one family a file."""
