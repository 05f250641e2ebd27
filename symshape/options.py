"""One frozen set of options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import attrs

from symshape.errors import InputError


def _positive(instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if type(value) is not int or value < 1:
        raise InputError(f"{attribute.name} must be a positive int, not {value!r}")


def _positive_or_none(instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if value is not None and (type(value) is not int or value < 1):
        raise InputError(f"{attribute.name} must be a positive int, or None for no limit, not {value!r}")


def _bytes(instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if value is not None and not isinstance(value, str) and (type(value) is not int or value < 1):
        raise InputError(
            f"{attribute.name} must be a positive int, an amount such as '2 GB', or None for no limit, not {value!r}"
        )


def _flag(instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if type(value) is not bool:
        raise InputError(f"{attribute.name} must be True or False, not {value!r}")


def _one_of(*names: str) -> Callable[[object, attrs.Attribute[Any], Any], None]:
    def check(instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
        if value not in names:
            raise InputError(f"{attribute.name} must be one of {', '.join(map(repr, names))}, not {value!r}")

    return check


def _fraction(instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise InputError(f"{attribute.name} must be a number from 0 to 1, not {value!r}")


@attrs.frozen(kw_only=True)
class Options:
    """The options of tracing and caching.

    Attributes:
        specialize_zero_one: sizes 0 and 1 become constants (PyTorch's habit); off by default.
        duck_shape: input sizes with equal hints share a symbol (PyTorch's habit); off by default.
        max_entries: entries kept by one compiled function; the least recently used leaves first.
        free_traces: traces for one structure of arguments (eight times as many for all) that need not pay.  After
            that, calls with sizes that no program serves run the function itself, with one warning.  They are traced
            once such calls have taken as long as a trace, with these sizes or with any; after each trace that serves
            no other call, four times as long.  Beyond the first two, each trace also waits until time so far is within
            the promise with it: at most 1.25 times eager's, and a second.  On a CUDA device the first call runs
            eagerly, and a call in which a size that changes is 0 or 1 waits for such calls to pay for a trace.  Sizes
            that were asked to be constants (``dynamic=False``, a description, ``mark_static``) use up none, nor does
            anything with ``fullgraph=True``.  None: every call that no program serves is traced.
        memo_size: exact argument tuples remembered for the quickest look-up.
        max_cuda_graphs: CUDA graphs and padded buckets kept by one compiled function, of all its programs together; as
            many again for each further piece of a program that runs in pieces.
            What has saved least for its bytes leaves for what would have saved clearly more.  Other sizes run in a
            larger bucket, or without a graph.
        graph_memory: how many bytes these may take together (an int, or text like ``"2 GB"``): their buffers, their
            results, and for each stream what the largest of them needs while it runs, counted from the sizes of their
            tensors.  None for no limit.
        outputs: ``"copy"``: results are the caller's own.  ``"borrow"``: results of padded programs lie in the memory
            of their bucket and are right until the next call of the compiled function; nothing is copied, they
            are not to be written to, and their strides may differ from eager's.
        check_borrowed: for finding those that are used too late: borrowed results turn to NaN (or extreme integers)
            at the next call.
        randomness: ``"eager"``: random numbers are those that eager draws from the same seed; programs that draw them
            for padded sizes are not padded.  ``"any"``: other numbers of the same distribution will do, as many as the
            padded program draws; they follow ``torch.manual_seed`` and differ from call to call.
        verify: the fraction of calls (0 to 1) for which eager runs too and is compared; a difference raises
            :class:`symshape.VerificationError`. 0.01 costs about two eager calls in a hundred.
        kernels: whose kernels padded programs run.  ``"eager"``: eager's.  ``"inductor"``: Inductor compiles a program
            with symbolic capacities at the first call, which waits, and again where what it assumed does not hold
            (twelve times at most); each bucket runs what is faster there, timed.
            ``"auto"``: the same, but calls wait for no compiler: only ``warm_up`` compiles.  ``"background"``: a
            process beside this one compiles while calls run eager's kernels; a bucket has Inductor's once they are
            there and its calls have lost what another capture takes (``settle`` waits for them, and captures them
            all).  On CUDA that process has a context of its own on the device while it is at work.
        plain_calls: with ``runner="auto"``, on the CPU: now and then calls are timed both ways, and where the function
            itself is clearly faster than its programs (a function of a few small ops), it serves the next thousand
            calls or more, then it is timed again.  Nothing is traced meanwhile, nor are sizes counted for
            ``Compiled.traffic``.  Training through ``torch.compile`` runs the graph as Dynamo made it on the CPU, and
            on a GPU where nothing of forward and backward is recorded or steps are faster so, timed both ways.
            False: calls that a program can serve are served by it, but for those under saved-tensor hooks (a
            checkpoint's), which run the function itself unless ``fullgraph`` was asked for.
        store: where programs are kept between processes: ``True`` for this user's folder of caches, a path, or a store.
            Of use with ``symshape.compile``.
        on_miss: ``"trace"``: a call that no program serves is traced.  ``"error"``: it raises
            :class:`symshape.MissError`, which names the sizes and the nearest program, and nothing is ever traced, nor
            run as it is: all programs come from the ``store`` (see :func:`symshape.bake`).
        minimise_guards: guards that the others imply are dropped (validated by Z3, kept on unknown).
    """

    specialize_zero_one: bool = attrs.field(default=False, validator=_flag)
    duck_shape: bool = attrs.field(default=False, validator=_flag)
    max_entries: int = attrs.field(default=1024, validator=_positive)
    free_traces: int | None = attrs.field(default=16, validator=_positive_or_none)
    memo_size: int = attrs.field(default=4096, validator=_positive)
    max_cuda_graphs: int = attrs.field(default=64, validator=_positive)
    kernels: Literal["eager", "inductor", "auto", "background"] = attrs.field(
        default="eager", validator=_one_of("eager", "inductor", "auto", "background")
    )
    graph_memory: int | str | None = attrs.field(default=None, validator=_bytes)
    outputs: Literal["copy", "borrow"] = attrs.field(default="copy", validator=_one_of("copy", "borrow"))
    check_borrowed: bool = attrs.field(default=False, validator=_flag)
    randomness: Literal["eager", "any"] = attrs.field(default="eager", validator=_one_of("eager", "any"))
    plain_calls: bool = attrs.field(default=True, validator=_flag)
    store: Any = False
    on_miss: Literal["trace", "error"] = attrs.field(default="trace", validator=_one_of("trace", "error"))
    minimise_guards: bool = attrs.field(default=True, validator=_flag)
    verify: float = attrs.field(default=0.0, validator=_fraction)


def options_of(given: Options | Mapping[str, Any] | None, *others: str) -> Options:
    """Return the options that a caller gave, as such or as a dictionary of their fields.

    Args:
        given: what the caller gave; None for the defaults.
        others: names that the caller may give besides, for the message.

    Raises:
        InputError: there is no such option, or its value is not one that it can have.

    >>> options_of({"memo_size": 8}).memo_size
    8
    """
    if isinstance(given, Options):
        return given
    if given is not None and not isinstance(given, Mapping):
        raise InputError(f"options must be a symshape.Options or a dictionary of its fields, not {given!r}")
    names = sorted(field.name for field in attrs.fields(Options))
    unknown = sorted(str(name) for name in given or () if name not in names)
    if unknown:
        raise InputError(f"there is no option {unknown[0]!r}; there are {', '.join((*others, *names))}")
    return Options(**dict(given or {}))
