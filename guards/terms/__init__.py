"""Integer and boolean terms: hash-consed, in one canonical form, and the one walk over them.

The ground floor: nothing here knows what is assumed of a symbol. A term is made by the functions
that build it, which bring it into its canonical form, so that equal terms are the same object;
everything that reads terms (text, code, intervals, values) is an algebra of the one memoised fold.
"""

import guards.terms.comparison  # the comparisons of Term
import guards.terms.division  # the operators of Term
import guards.terms.printing  # its text  # noqa: F401
