"""One frozen set of options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import attrs

from symshape.errors import InputError
from symshape.spelling import known_names, nearest


def _positive(instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if type(value) is not int or value < 1:
        raise InputError(f"{attribute.name} must be a positive int, not {value!r}")


def _positive_or_none(instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if value is not None and (type(value) is not int or value < 1):
        raise InputError(
            f"{attribute.name} must be a positive int, or None for no limit, not {value!r}"
        )


def _bytes(instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if value is not None and not isinstance(value, str) and (type(value) is not int or value < 1):
        raise InputError(
            f"{attribute.name} must be a positive int, an amount such as '2 GB', or None for no "
            f"limit, not {value!r}"
        )


def _flag(instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if type(value) is not bool:
        raise InputError(f"{attribute.name} must be True or False, not {value!r}")


def _one_of(*names: str) -> Callable[[object, attrs.Attribute[Any], Any], None]:
    def check(instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
        if value not in names:
            raise InputError(
                f"{attribute.name} must be one of {', '.join(map(repr, names))}, not {value!r}"
            )

    return check


def _fraction(instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise InputError(f"{attribute.name} must be a number from 0 to 1, not {value!r}")


@known_names(InputError)
@attrs.frozen(kw_only=True)
class Options:
    """The options of tracing and caching.

    Attributes:
        specialize_zero_one: sizes 0 and 1 become constants (PyTorch's habit); off by default.
        duck_shape: input sizes with equal hints share a symbol (PyTorch's habit); off by default.
        max_entries: the largest number of entries of one compiled function; the least recently used
            is evicted first.
        free_traces: the number of traces for one structure of arguments (and eight times as many in
            all) that need not pay.  After that, calls with sizes that no program serves run the
            function eagerly, with one warning. They are traced once such calls have taken as long
            as a trace, with these sizes or with any; after each trace that serves no other call,
            four times as long.  From the third trace on, a call is traced only if the total time
            with the trace stays below 1.25 times eager's, plus 1 s.  On a CUDA device the first
            calls run eagerly, and a call in which a size that changes is 0 or 1 waits until such
            calls pay for a trace.  Sizes that were declared constant (``dynamic=False``, a
            description, ``mark_static``) do not count, nor do traces with ``fullgraph=True``.
            None: every call that no program serves is traced.
        memo_size: the number of exact argument tuples that are remembered for the quickest look-up.
        max_cuda_graphs: the largest number of CUDA graphs and padded buckets of one compiled
            function, of all its programs together; as many again for each further piece of a
            program that runs in pieces.  The graph that has saved least for its bytes is evicted
            for one that would have saved clearly more; a graph in use never is.  A call without a
            graph runs in a larger bucket, or without a graph.
        graph_memory: the largest number of bytes that CUDA graphs and padded buckets take together
            (an int, or text like ``"2 GB"``): their buffers, their results, and for each stream the
            largest workspace, counted from the sizes of their tensors.  None for no limit.
        outputs: ``"copy"``: results are the caller's own.  ``"borrow"``: results of padded programs
            are in the memory of their bucket, and valid until the next call of the compiled
            function.  Nothing is copied.  They must not be written to, and their strides may differ
            from eager's.
        check_borrowed: debugging of borrowed results: at the next call they turn to NaN (or extreme
            integers).
        randomness: ``"any"``: a padded program draws other numbers than eager, of the same
            distribution, as many as it has elements at its capacities.  Numbers differ from call to
            call.  After ``torch.manual_seed`` the same calls give the same numbers, if the same
            buckets serve them.  Calls inside a checkpoint, programs with a checkpoint or a
            collective, and ops with a generator of the caller's have eager's numbers.  ``"eager"``:
            every number is the one that eager draws from the same seed.  This costs the padding of
            ops that draw: they run one by one between padded pieces, so a model with dropout has
            many small graphs in place of one. Processes that must draw the same numbers need it,
            too: their buckets may differ.
        verify: the fraction of calls (0 to 1) for which eager runs too and is compared; a
            difference raises :class:`symshape.VerificationError`. 0.01 costs about two eager calls
            in a hundred.
        kernels: the kernels of padded programs.  ``"eager"``: eager's.  ``"inductor"``: Inductor
            compiles a program with symbolic capacities at the first call, which waits, and again
            where its assumptions do not hold (twelve times at most); each bucket runs the faster
            kernels, by measured times.  ``"auto"``: the same, but calls never wait for the
            compiler: only ``warm_up`` compiles.  ``"background"``: another process compiles while
            calls run eager's kernels.  A bucket switches to Inductor's kernels once they exist and
            its calls have lost as much time as another capture takes (``settle`` waits for them,
            and captures them all).  On CUDA that process has a context of its own on the device
            while it works.
        plain_calls: with ``runner="auto"``, on the CPU: now and then calls are timed both ways.
            Where eager is clearly faster than the programs (a function of a few small ops), it
            serves the next thousand calls or more, and is then timed again.  Meanwhile nothing is
            traced, and no sizes are counted for ``Compiled.traffic``.  Training through
            ``torch.compile`` runs Dynamo's graph on the CPU.  It does so on a GPU too where nothing
            of forward and backward is recorded, or where steps are measured to be faster so.
            False: programs serve every call that they can, except calls under saved-tensor hooks (a
            checkpoint's); these run eagerly unless ``fullgraph`` was asked for.
        store: where programs are stored between processes: ``True`` for this user's folder of
            caches, a path, or a store.  Of use with ``symshape.compile``.
        on_miss: ``"trace"``: a call that no program serves is traced.  ``"error"``: it raises
            :class:`symshape.MissError`, which names the sizes and the nearest program.  Then
            nothing is ever traced or run eagerly: all programs come from the ``store`` (see
            :func:`symshape.bake`).
        minimise_guards: guards that the others imply are dropped (validated by Z3, kept on
            unknown).
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
    outputs: Literal["copy", "borrow"] = attrs.field(
        default="copy", validator=_one_of("copy", "borrow")
    )
    check_borrowed: bool = attrs.field(default=False, validator=_flag)
    randomness: Literal["eager", "any"] = attrs.field(
        default="any", validator=_one_of("eager", "any")
    )
    plain_calls: bool = attrs.field(default=True, validator=_flag)
    store: Any = False
    on_miss: Literal["trace", "error"] = attrs.field(
        default="trace", validator=_one_of("trace", "error")
    )
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
        raise InputError(
            f"options must be a symshape.Options or a dictionary of its fields, not {given!r}"
        )
    names = sorted(field.name for field in attrs.fields(Options))
    unknown = sorted(str(name) for name in given or () if name not in names)
    if unknown:
        raise InputError(
            f"there is no option {unknown[0]!r}{nearest(unknown[0], (*others, *names))}; there are "
            f"{', '.join((*others, *names))}"
        )
    return Options(**dict(given or {}))
