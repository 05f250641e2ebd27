/* What stands between a call and the launch of its graph, in one pass (symshape/runtime/runners/cuda/launch.py).

   `Launch(...)(leaves, numbers)` copies the inputs of a call into the first part of a graph's buffers, writes the true
   sizes that differ from those of the call before, replays the graph and answers copies of the valid parts of what it
   computed: what `Bucket.call` and `CudaGraphRunner.run` do in Python, where each step is a frame and an argument parser
   that the processor has long forgotten when a call comes. It answers None, with nothing done, for whatever is out of
   the ordinary: Python's way serves then.

   Where the graph has nodes that copy (compiled_copies.h), what is one piece of memory on both sides is left to them.
   All else that is one piece is copied in one launch.

   setup.py builds this against the torch that is installed, and `TORCH` says which: it is used with no other. No header
   of CUDA is needed: the replay is a Python callable. */

#include <Python.h>
#include <structmember.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include "compiled_copies.h"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <tuple>
#include <utility>
#include <vector>

namespace {

using symshape::Copies;

constexpr size_t WIDE = sizeof(int64_t);
constexpr size_t FEW = 3;  // sizes that are filled in one by one, as in true_sizes.py

/* What becomes of one result; the numbers are those of cuda/launch.py. */
enum class Kind : long { KNOWN = 0, LEAF = 1, CLONE = 2, PART = 3, AGAIN = 4, VIEW = 5, NUMBER = 6 };

/* Dimensions that are made of several sizes: the valid part of memory is no first part of them. */
struct Apart {
    std::vector<size_t> places;  // of all sizes, among the numbers
    std::vector<int64_t> caps;  // how large each is in memory
    std::vector<size_t> groups;  // how many there are in each dimension

    bool empty() const { return places.empty(); }
};

struct Result {
    Kind kind;
    size_t place;  // LEAF, VIEW: among the leaves; PART: among the tensors; AGAIN: the results; NUMBER: the numbers
    PyObject *object;  // KNOWN: itself, borrowed from the tuple of results
    at::Tensor tensor;  // CLONE: what is copied
    std::vector<size_t> sizes, strides;  // PART, VIEW: places among the numbers
    long node = -1;  // among the graph's copies
    Apart apart;  // PART
    long memory = -1;  // PART: which of those that results share; -1 for one of its own, which it fills
    size_t offset = 0, base = 0;  // PART in such a memory, VIEW: places among the numbers
    bool cut = false;  // VIEW: of a detached argument
};

struct Input {
    size_t position;
    at::Tensor buffer;
    bool large;  // what is copied to it may gain by wider elements
    long node;  // among the graph's copies; -1 for none
    Apart apart;
};

/* An input that is read where it lies. */
struct Stays {
    size_t position;
    const void *address;
};

struct Lifted {
    PyObject *tensor;  // borrowed from the tuple
    const void *address;
};

struct Plan {
    std::vector<Input> inputs;
    std::vector<Stays> stays;
    std::vector<at::Tensor> each;  // the true sizes, as tensors without dimensions
    std::vector<size_t> places;  // where these are among the numbers
    std::vector<Lifted> lifted;
    std::vector<Result> results;
    std::vector<at::Tensor> tensors;  // what the replay computes, where that lies in the same memory each time
    bool answers = false;  // whether results are made of what each replay answers
    size_t memories = 0;  // that results share
    size_t least = 0;  // bytes from which on a copy is looked at, whether wider elements do; 0: none is
    std::vector<const void *> addresses;  // of the inputs of the call before
    long worth = 0;  // after so many calls in a row at the same addresses the call is left to Python; 0: never
    long repeated = 0;
};

struct Launch {
    PyObject_HEAD
    PyObject *replay, *true_sizes, *lifted, *results;
    Copies *copies;  // of the graph; or null
    Plan *plan;
    vectorcallfunc call;
};

PyObject *HELD, *PARAMETER;

/* Lets other threads run, as torch's own functions do. */
struct WithoutGil {
    PyThreadState *state = PyEval_SaveThread();
    ~WithoutGil() { PyEval_RestoreThread(state); }
};

inline bool is_plain(PyObject *object)
{
    PyObject *type = reinterpret_cast<PyObject *>(Py_TYPE(object));
    return type == THPVariableClass || type == PARAMETER;
}

/* Whether somebody looks at every op of this thread: a dispatch mode, or a transform of functorch's. */
inline bool is_watched()
{
    const c10::DispatchKeySet now = c10::impl::tls_local_dispatch_key_set().included_;
    return now.has(c10::DispatchKey::Python) || now.has(c10::DispatchKey::FuncTorchDynamicLayerFrontMode);
}

/* Whether a tensor is of the kind of a buffer, but for gradients, and fits into it. */
bool fits(const at::Tensor &source, const at::Tensor &buffer)
{
    constexpr c10::DispatchKeySet apart = c10::autograd_dispatch_keyset_with_ADInplaceOrView;
    const c10::TensorImpl *its = source.unsafeGetTensorImpl(), *own = buffer.unsafeGetTensorImpl();
    if (its->has_symbolic_sizes_strides() || its->layout() != c10::kStrided || its->dtype() != own->dtype() ||
        its->device() != own->device() || !((its->key_set() - apart) == (own->key_set() - apart)))
        return false;
    const auto sizes = its->sizes(), room = own->sizes();
    if (sizes.size() != room.size() || its->numel() == 0)
        return false;
    for (size_t d = 0; d < sizes.size(); d++)
        if (sizes[d] > room[d])
            return false;
    return true;
}

/* Whether so many elements lie in a row wherever one of the wider elements would begin. */
bool divides(const at::Tensor &tensor, int64_t factor)
{
    const int64_t last = tensor.dim() - 1;
    if (tensor.layout() != c10::kStrided || tensor.is_conj() || tensor.is_neg() ||
        c10::isQIntType(tensor.scalar_type()) || tensor.stride(last) != 1 || tensor.storage_offset() % factor)
        return false;
    for (int64_t d = 0; d < last; d++)
        if (tensor.stride(d) % factor)
            return false;
    return reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % WIDE == 0;
}

/* Has a copy of tensors of one kind be one of wider elements, where it is the same bytes and not a whole block anyway:
   what wide_copies.py does in Python, and says why. */
void widen(at::Tensor &target, at::Tensor &source)
{
    const int64_t factor = WIDE / target.element_size();
    if (factor < 2 || !target.dim() || target.size(-1) % factor || target.sizes() != source.sizes() ||
        (target.is_contiguous() && source.is_contiguous()) || !divides(target, factor) || !divides(source, factor))
        return;
    target = target.view(at::kLong);
    source = source.view(at::kLong);
}

bool same_addresses(Plan &plan, const std::vector<at::Tensor> &sources)
{
    bool same = plan.addresses.size() == sources.size();
    plan.addresses.resize(sources.size());
    for (size_t i = 0; i < sources.size(); i++) {
        const void *address = sources[i].const_data_ptr();
        same = same && plan.addresses[i] == address;
        plan.addresses[i] = address;
    }
    return same;
}

/* Whether a tensor fills one piece of memory, and another one has its elements in the same order. */
bool is_one_piece(const at::Tensor &tensor, c10::IntArrayRef strides)
{
    if (!tensor.is_non_overlapping_and_dense())
        return false;
    const auto sizes = tensor.sizes(), own = tensor.strides();
    for (size_t d = 0; d < sizes.size(); d++)
        if (sizes[d] != 1 && own[d] != strides[d])
            return false;
    return true;
}

bool overlap(const void *one, const void *other, size_t bytes)
{
    const auto a = reinterpret_cast<uintptr_t>(one), b = reinterpret_cast<uintptr_t>(other);
    return a < b + bytes && b < a + bytes;
}

/* A call's own result, and whether it has its data, or will have it once the graph has run. */
struct Made {
    at::Tensor tensor;
    bool filled = false;
};

/* Memory that results of a call share: how many elements, and the tensor. */
struct Shared {
    int64_t end = 0;
    at::Tensor tensor;
    bool filled = false;
};

/* Where a tensor of these sizes and strides ends that begins at an offset; 0 for one without elements. */
int64_t end_of(c10::IntArrayRef sizes, c10::IntArrayRef strides, int64_t offset)
{
    int64_t end = offset + 1;
    for (size_t d = 0; d < sizes.size(); d++) {
        if (!sizes[d])
            return 0;
        end += (sizes[d] - 1) * strides[d];
    }
    return end;
}

/* One call: what it needs is looked at first, and nothing is done where something is out of the ordinary. */
struct Call {
    Plan &plan;
    std::vector<at::Tensor> sources;
    std::vector<int64_t> numbers;
    std::vector<std::pair<size_t, int64_t>> changed;  // true sizes: which, and what is to be added
    std::vector<int64_t> integers;  // sizes, then strides, of each part and view
    std::vector<Shared> shared;

    bool read(PyObject *const *leaves, Py_ssize_t count)
    {
        for (const Lifted &each : plan.lifted)  // nobody asked for them lately: all at once
            __builtin_prefetch(each.tensor);
        for (const Lifted &each : plan.lifted)
            if (THPVariable_Unpack(each.tensor).const_data_ptr() != each.address)
                return false;
        for (const Stays &input : plan.stays) {
            if (static_cast<Py_ssize_t>(input.position) >= count || !is_plain(leaves[input.position]) ||
                THPVariable_Unpack(leaves[input.position]).const_data_ptr() != input.address)
                return false;
        }
        sources.reserve(plan.inputs.size());
        for (const Input &input : plan.inputs) {
            if (static_cast<Py_ssize_t>(input.position) >= count || !is_plain(leaves[input.position]))
                return false;
            sources.push_back(THPVariable_Unpack(leaves[input.position]));
            if (!fits(sources.back(), input.buffer))
                return false;
        }
        if (plan.worth) {
            plan.repeated = same_addresses(plan, sources) ? plan.repeated + 1 : 1;
            if (plan.repeated == plan.worth)
                return false;
        }
        return true;
    }

    bool count(PyObject *tuple)
    {
        const Py_ssize_t size = PyTuple_GET_SIZE(tuple);
        numbers.reserve(size);
        for (Py_ssize_t i = 0; i < size; i++) {
            numbers.push_back(PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, i)));
            if (numbers.back() == -1 && PyErr_Occurred())
                return false;
        }
        for (const Input &input : plan.inputs)
            if (!input.apart.empty() && !is_whole(input.apart, sources[&input - plan.inputs.data()].sizes()))
                return false;
        shared.resize(plan.memories);
        for (const Result &each : plan.results) {
            if (each.kind == Kind::NUMBER)
                numbers.at(each.place);
            if (each.kind != Kind::PART && each.kind != Kind::VIEW)
                continue;
            const size_t at = integers.size(), rank = each.sizes.size();
            for (size_t place : each.sizes)
                integers.push_back(numbers.at(place));
            for (size_t place : each.strides) {
                if (!numbers.at(place) && each.kind == Kind::PART)
                    return false;  // elements that share memory
                integers.push_back(numbers[place]);
            }
            const c10::IntArrayRef sizes(integers.data() + at, rank), strides(integers.data() + at + rank, rank);
            if (!each.apart.empty() && !is_whole(each.apart, sizes))
                return false;
            if (each.kind == Kind::VIEW && numbers.at(each.offset) < numbers.at(each.base))
                return false;
            if (each.memory >= 0) {
                Shared &memory = shared.at(each.memory);
                memory.end = std::max(memory.end, end_of(sizes, strides, numbers.at(each.offset)));
            }
        }
        return true;
    }

    /* Whether dimensions of these sizes are made of such ones, in this call. */
    bool is_whole(const Apart &apart, c10::IntArrayRef sizes) const
    {
        size_t next = 0;
        for (size_t d = 0; d < apart.groups.size(); d++) {
            int64_t whole = 1;
            for (size_t i = 0; i < apart.groups[d]; i++, next++) {
                const int64_t size = numbers.at(apart.places[next]);
                if (size > apart.caps[next])
                    return false;
                whole *= size;
            }
            if (d >= sizes.size() || sizes[d] != whole)
                return false;
        }
        return apart.groups.size() == sizes.size();
    }

    std::vector<int64_t> sizes_of(const Apart &apart) const
    {
        std::vector<int64_t> sizes;
        sizes.reserve(apart.places.size());
        for (size_t place : apart.places)
            sizes.push_back(numbers[place]);
        return sizes;
    }

    /* The valid part of a tensor in memory, with the sizes apart of which its dimensions are made. */
    at::Tensor valid(const at::Tensor &tensor, const Apart &apart) const
    {
        const at::Tensor whole = tensor.reshape(apart.caps);
        return at::as_strided(whole, sizes_of(apart), whole.strides(), whole.storage_offset());
    }

    /* A tensor with no padding, its dimensions split likewise: a view, whatever its strides. */
    at::Tensor split(const at::Tensor &tensor, const Apart &apart) const
    {
        const std::vector<int64_t> sizes = sizes_of(apart);
        std::vector<int64_t> strides(sizes.size());
        size_t end = 0;
        for (size_t d = 0; d < apart.groups.size(); d++) {
            end += apart.groups[d];
            int64_t stride = tensor.stride(d);
            for (size_t i = end; i > end - apart.groups[d]; i--) {
                strides[i - 1] = stride;
                stride *= sizes[i - 1];
            }
        }
        return at::as_strided(tensor, sizes, strides, tensor.storage_offset());
    }

    /* Notes which true sizes are to be written; false where nobody knows what they are. */
    bool compare(PyObject *true_sizes)
    {
        if (plan.each.empty())
            return true;
        PyObject *held = PyObject_GetAttr(true_sizes, HELD);
        bool known = held && PyTuple_Check(held) && PyTuple_GET_SIZE(held) == static_cast<Py_ssize_t>(plan.each.size());
        for (size_t i = 0; known && i < plan.each.size(); i++) {
            const int64_t then = PyLong_AsLongLong(PyTuple_GET_ITEM(held, i)), now = numbers.at(plan.places[i]);
            known = !(then == -1 && PyErr_Occurred());
            if (then != now)
                changed.emplace_back(i, now - then);
        }
        Py_XDECREF(held);
        return known;
    }

    /* Whether the graph copies this input itself. */
    bool is_given(Copies *copies, size_t i) const
    {
        const Input &input = plan.inputs[i];
        const at::Tensor &source = sources[i];
        if (!copies || input.node < 0)
            return false;
        const void *from = source.const_data_ptr();
        void *to = input.buffer.data_ptr();
        if (is_one_piece(source, input.buffer.strides()) && !overlap(from, to, source.nbytes()))
            return copies->give(input.node, from, to, source.nbytes());
        copies->turn_off(input.node);
        return false;
    }

    void copy(Copies *copies)
    {
        std::vector<at::Tensor> targets, given;
        targets.reserve(sources.size());
        given.reserve(sources.size());
        for (size_t i = 0; i < sources.size(); i++) {
            if (is_given(copies, i))
                continue;
            const at::Tensor &buffer = plan.inputs[i].buffer, &source = sources[i];
            if (const Apart &apart = plan.inputs[i].apart; !apart.empty()) {
                targets.push_back(valid(buffer, apart));
                given.push_back(split(source, apart));
                continue;
            }
            targets.push_back(source.sizes() == buffer.sizes() ? buffer
                                                               : at::as_strided(buffer, source.sizes(), buffer.strides()));
            given.push_back(source);
            if (plan.inputs[i].large && source.nbytes() >= plan.least)
                widen(targets.back(), given.back());
        }
        copy_all(targets, given);
    }

    void write() const
    {
        if (changed.size() <= FEW) {
            for (const auto &[place, difference] : changed)
                plan.each[place].fill_(numbers[plan.places[place]]);
            return;
        }
        std::vector<c10::Scalar> differences(plan.each.size(), 0);
        for (const auto &[place, difference] : changed)
            differences[place] = difference;
        at::_foreach_add_(plan.each, differences);
    }

    /* The memory of a call's own results that the graph might copy itself: before it is launched. */
    std::vector<Made> given(Copies *copies) const
    {
        std::vector<Made> found(plan.results.size());
        const int64_t *next = integers.data();
        for (size_t i = 0; i < plan.results.size(); i++) {
            const Result &each = plan.results[i];
            c10::IntArrayRef sizes, strides;
            if (each.kind == Kind::PART || each.kind == Kind::VIEW)
                std::tie(sizes, strides) = shape(each, next);
            if (!copies || each.node < 0)
                continue;
            const at::Tensor &tensor = each.kind == Kind::PART ? plan.tensors[each.place] : each.tensor;
            if (each.kind == Kind::CLONE)
                std::tie(sizes, strides) = std::pair(tensor.sizes(), tensor.strides());
            const at::Tensor &made = found[i].tensor = own(tensor, sizes, strides);
            if (made.numel() && is_one_piece(made, tensor.strides()))
                found[i].filled = copies->give(each.node, tensor.const_data_ptr(), made.data_ptr(), made.nbytes());
            else
                copies->turn_off(each.node);
        }
        return found;
    }

    /* Copies for the caller, one for each result that is computed. */
    void make(const std::vector<at::Tensor> &tensors, std::vector<Made> &found)
    {
        fill_whole(tensors);
        std::vector<at::Tensor> targets, sources;
        const int64_t *next = integers.data();
        for (size_t i = 0; i < plan.results.size(); i++) {
            const Result &each = plan.results[i];
            at::Tensor &target = found[i].tensor;
            if (each.kind == Kind::CLONE && !found[i].filled) {
                if (each.tensor.is_non_overlapping_and_dense()) {
                    target = at::empty_strided(each.tensor.sizes(), each.tensor.strides(), each.tensor.options());
                    targets.push_back(target);
                    sources.push_back(each.tensor);
                } else {
                    target = at::clone(each.tensor);
                }
            }
            if (each.kind != Kind::PART && each.kind != Kind::VIEW)
                continue;
            const auto [sizes, strides] = shape(each, next);
            if (found[i].filled || each.kind == Kind::VIEW)
                continue;
            const at::Tensor &tensor = tensors.at(each.place);
            if (each.memory >= 0) {
                fill(shared[each.memory], each, tensor, sizes, strides);
                continue;
            }
            if (!target.defined())
                target = own(tensor, sizes, strides);
            auto [to, from] = part(target, each, tensor);
            targets.push_back(std::move(to));
            sources.push_back(std::move(from));
        }
        copy_all(targets, sources);
    }

    /* Copies tensors: those of one kind in one launch, and each other one by itself. */
    static void copy_all(const std::vector<at::Tensor> &targets, const std::vector<at::Tensor> &sources)
    {
        std::vector<at::Tensor> to, from;
        for (size_t i = 0; i < targets.size(); i++) {
            const at::Tensor &target = targets[i], &source = sources[i];
            if (is_one_piece(target, source.strides()) && target.sizes() == source.sizes() &&
                (to.empty() || target.scalar_type() == to[0].scalar_type())) {
                to.push_back(target);
                from.push_back(source);
            } else {
                target.copy_(source);
            }
        }
        if (to.size() == 1)
            to[0].copy_(from[0]);
        else if (!to.empty())
            at::_foreach_copy_(to, from);
    }

    /* The valid part of a tensor, and where a result is to have it. */
    std::pair<at::Tensor, at::Tensor> part(const at::Tensor &target, const Result &each, const at::Tensor &tensor) const
    {
        if (!each.apart.empty())
            return {split(target, each.apart), valid(tensor, each.apart)};
        const c10::IntArrayRef sizes = target.sizes();
        at::Tensor source = tensor.sizes() == sizes
                                ? tensor
                                : at::as_strided(tensor, sizes, tensor.strides(), tensor.storage_offset());
        at::Tensor wide = target;
        if (plan.least && source.nbytes() >= plan.least)
            widen(wide, source);
        return {wide, source};
    }

    void copy_part(const at::Tensor &target, const Result &each, const at::Tensor &tensor) const
    {
        const auto [to, from] = part(target, each, tensor);
        to.copy_(from);
    }

    /* Puts a result into memory that it shares with others, unless one of them fills it all. */
    void fill(Shared &memory, const Result &each, const at::Tensor &tensor, c10::IntArrayRef sizes,
              c10::IntArrayRef strides) const
    {
        check(tensor, sizes);
        if (!memory.tensor.defined())
            memory.tensor = at::empty({memory.end}, tensor.options());
        const int64_t offset = numbers[each.offset];
        if (!memory.filled && end_of(sizes, strides, offset))
            copy_part(at::as_strided(memory.tensor, sizes, strides, offset), each, tensor);
    }

    /* Fills memory that results share by one of them, where one fills it. */
    void fill_whole(const std::vector<at::Tensor> &tensors)
    {
        const int64_t *next = integers.data();
        for (const Result &each : plan.results) {
            if (each.kind != Kind::PART && each.kind != Kind::VIEW)
                continue;
            const auto [sizes, strides] = shape(each, next);
            if (each.memory < 0)
                continue;
            Shared &memory = shared[each.memory];
            if (memory.filled || numbers[each.offset] || c10::multiply_integers(sizes) != memory.end || !memory.end)
                continue;
            const at::Tensor &tensor = tensors.at(each.place);
            check(tensor, sizes);
            memory.tensor = at::empty({memory.end}, tensor.options());
            const at::Tensor target = at::as_strided(memory.tensor, sizes, strides, 0);
            if (!target.is_non_overlapping_and_dense())
                continue;
            copy_part(target, each, tensor);
            memory.filled = true;
        }
    }

    /* Views, of arguments and of memory that results share: torch is told of each. */
    void view(PyObject *const *leaves, std::vector<Made> &found) const
    {
        const int64_t *next = integers.data();
        for (size_t i = 0; i < plan.results.size(); i++) {
            const Result &each = plan.results[i];
            if (each.kind != Kind::PART && each.kind != Kind::VIEW)
                continue;
            const auto [sizes, strides] = shape(each, next);
            if (each.kind == Kind::VIEW) {
                const at::Tensor &given = THPVariable_Unpack(leaves[each.place]);
                const at::Tensor leaf = each.cut ? given.detach() : given;
                const int64_t more = numbers[each.offset] - numbers[each.base];
                found[i].tensor = at::as_strided(leaf, sizes, strides, leaf.storage_offset() + more);
            } else if (each.memory >= 0) {
                found[i].tensor = at::as_strided(shared[each.memory].tensor, sizes, strides, numbers[each.offset]);
            }
        }
    }

    /* The sizes and the strides of a part, which begin at `next`, which goes on. */
    static std::pair<c10::IntArrayRef, c10::IntArrayRef> shape(const Result &part, const int64_t *&next)
    {
        const c10::IntArrayRef sizes(next, part.sizes.size()), strides(next + sizes.size(), part.strides.size());
        next += sizes.size() + strides.size();
        return {sizes, strides};
    }

    /* Memory for the first part of a tensor. */
    static at::Tensor own(const at::Tensor &tensor, c10::IntArrayRef sizes, c10::IntArrayRef strides)
    {
        check(tensor, sizes);
        return at::empty_strided(sizes, strides, tensor.options());
    }

    static void check(const at::Tensor &tensor, c10::IntArrayRef sizes)
    {
        TORCH_CHECK(tensor.dim() == static_cast<int64_t>(sizes.size()), "a result has other dimensions");
        for (size_t d = 0; d < sizes.size(); d++)
            TORCH_CHECK(sizes[d] <= tensor.size(d), "a result is larger than what was computed");
    }
};

/* The tensors that a replay answered. */
bool unpack(PyObject *answer, std::vector<at::Tensor> &tensors)
{
    PyObject *fast = PySequence_Fast(answer, "a replay answers tensors");
    if (!fast)
        return false;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast); i++) {
        PyObject *each = PySequence_Fast_GET_ITEM(fast, i);
        tensors.push_back(THPVariable_Check(each) ? THPVariable_Unpack(each) : at::Tensor());
    }
    Py_DECREF(fast);
    return true;
}

/* A new list of the results of a call. */
PyObject *listed(const Plan &plan, PyObject *const *leaves, const Call &call, const std::vector<Made> &made)
{
    PyObject *list = PyList_New(plan.results.size());
    for (size_t i = 0; list && i < plan.results.size(); i++) {
        const Result &each = plan.results[i];
        PyObject *found = nullptr;
        switch (each.kind) {
        case Kind::KNOWN: found = Py_NewRef(each.object); break;
        case Kind::LEAF: found = Py_NewRef(leaves[each.place]); break;
        case Kind::AGAIN: found = Py_NewRef(PyList_GET_ITEM(list, each.place)); break;
        case Kind::NUMBER: found = PyLong_FromLongLong(call.numbers[each.place]); break;
        case Kind::CLONE:
        case Kind::VIEW:
        case Kind::PART: found = THPVariable_Wrap(made[i].tensor); break;
        }
        if (!found)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, i, found);
    }
    return list;
}

/* Writes the true sizes; what they are is unknown until all are written. */
bool write_sizes(const Launch *self, Call &call)
{
    if (call.changed.empty())
        return true;
    PyObject *held = PyTuple_New(call.plan.places.size());
    for (size_t i = 0; held && i < call.plan.places.size(); i++) {
        PyObject *number = PyLong_FromLongLong(call.numbers[call.plan.places[i]]);
        if (!number)
            Py_CLEAR(held);
        else
            PyTuple_SET_ITEM(held, i, number);
    }
    bool written = held && PyObject_SetAttr(self->true_sizes, HELD, Py_None) == 0;
    if (written) {
        try {
            WithoutGil others;
            at::AutoDispatchBelowADInplaceOrView below;
            call.write();
        } catch (...) {
            Py_DECREF(held);
            throw;
        }
        written = PyObject_SetAttr(self->true_sizes, HELD, held) == 0;
    }
    Py_XDECREF(held);
    return written;
}

/* Looks at a call; false, with nothing done, where it is out of the ordinary. */
bool is_ordinary(Launch *self, Call &call, PyObject *const *leaves, Py_ssize_t count, PyObject *numbers)
{
    bool found = false;
    try {
        found = !is_watched() && call.read(leaves, count) && call.count(numbers) && call.compare(self->true_sizes);
    } catch (const std::exception &) {  // a tensor without memory
    }
    if (PyErr_Occurred()) {  // Python's way says it in its own words
        PyErr_Clear();
        found = false;
    }
    return found;
}

PyObject *run(Launch *self, PyObject *const *leaves, Py_ssize_t count, PyObject *numbers)
{
    Call call{*self->plan, {}, {}, {}, {}, {}};
    if (!is_ordinary(self, call, leaves, count, numbers))
        Py_RETURN_NONE;
    const c10::AutoGradMode no_gradients(false);
    Copies *copies = self->copies;
    if (copies && copies->user != self) {  // what another one had copied
        copies->turn_off_all();
        copies->user = self;
    }
    {
        WithoutGil others;
        at::AutoDispatchBelowADInplaceOrView below;
        call.copy(copies);
    }
    if (!write_sizes(self, call))
        return nullptr;
    std::vector<at::Tensor> answered;
    std::vector<Made> made;
    bool launched = false;
    {
        WithoutGil others;
        at::AutoDispatchBelowADInplaceOrView below;
        made = call.given(copies);
        launched = copies && copies->launch();
    }
    PyObject *answer = launched ? Py_NewRef(Py_None) : PyObject_CallNoArgs(self->replay);
    if (!answer)
        return nullptr;
    const bool answers = call.plan.answers;
    if (answers && !unpack(answer, answered)) {
        Py_DECREF(answer);
        return nullptr;
    }
    try {
        WithoutGil others;
        at::AutoDispatchBelowADInplaceOrView below;
        call.make(answers ? answered : call.plan.tensors, made);
    } catch (...) {
        Py_DECREF(answer);
        throw;
    }
    Py_DECREF(answer);
    call.view(leaves, made);  // others wait: the leaves are Python's
    return listed(call.plan, leaves, call, made);
}

PyObject *launch_call(PyObject *object, PyObject *const *args, size_t given, PyObject *names)
{
    auto *self = reinterpret_cast<Launch *>(object);
    if (names || PyVectorcall_NARGS(given) != 2 || !PyTuple_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "a launch takes leaves, and numbers in a tuple");
        return nullptr;
    }
    PyObject *leaves = args[0], *numbers = args[1];
    PyObject *fast = PySequence_Fast(leaves, "the leaves are a sequence");
    if (!fast)
        return nullptr;
    PyObject *keep = Py_NewRef(object), *found = nullptr;  // a replay may let go of us
    if (self->plan) {
        try {
            found = run(self, PySequence_Fast_ITEMS(fast), PySequence_Fast_GET_SIZE(fast), numbers);
        } catch (const std::exception &) {
            torch::translate_exception_to_python(std::current_exception());
        }
    } else {
        found = Py_NewRef(Py_None);
    }
    Py_DECREF(fast);
    Py_DECREF(keep);
    return found;
}

bool read_places(PyObject *tuple, std::vector<size_t> &places)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
        places.push_back(PyLong_AsSize_t(PyTuple_GET_ITEM(tuple, i)));
        if (PyErr_Occurred())
            return false;
    }
    return true;
}

bool read_tensors(PyObject *tuple, std::vector<at::Tensor> &tensors)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
        PyObject *each = PyTuple_GET_ITEM(tuple, i);
        if (!THPVariable_Check(each)) {
            PyErr_SetString(PyExc_TypeError, "this is no tensor");
            return false;
        }
        tensors.push_back(THPVariable_Unpack(each));
    }
    return true;
}

bool read_integers(PyObject *tuple, std::vector<int64_t> &integers)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
        integers.push_back(PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, i)));
        if (PyErr_Occurred())
            return false;
    }
    return true;
}

bool read_apart(PyObject *places, PyObject *caps, PyObject *groups, Apart &apart)
{
    return read_places(places, apart.places) && read_integers(caps, apart.caps) && read_places(groups, apart.groups);
}

/* What there is to a result besides its sizes and strides. */
bool read_more(PyObject *object, Result &made)
{
    PyObject *places, *caps, *groups;
    Py_ssize_t offset, base;
    if (made.kind == Kind::VIEW) {
        int cut;
        if (!PyArg_ParseTuple(object, "nnp", &offset, &base, &cut))
            return false;
        made.offset = offset, made.base = base, made.cut = cut;
    }
    if (made.kind == Kind::PART && object != Py_None) {
        if (!PyArg_ParseTuple(object, "lnO!O!O!", &made.memory, &offset, &PyTuple_Type, &places, &PyTuple_Type, &caps,
                              &PyTuple_Type, &groups))
            return false;
        made.offset = offset;
        return read_apart(places, caps, groups, made.apart);
    }
    return true;
}

bool read_results(PyObject *tuple, std::vector<Result> &results)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
        long kind;
        Py_ssize_t place;
        PyObject *object, *sizes, *strides;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(tuple, i), "lnOO!O!", &kind, &place, &object, &PyTuple_Type, &sizes,
                              &PyTuple_Type, &strides))
            return false;
        Result made;
        made.kind = static_cast<Kind>(kind), made.place = static_cast<size_t>(place), made.object = object;
        if (made.kind == Kind::CLONE)
            made.tensor = THPVariable_Unpack(object);
        if (!read_places(sizes, made.sizes) || !read_places(strides, made.strides) || !read_more(object, made))
            return false;
        results.push_back(std::move(made));
    }
    return true;
}

bool read_stays(PyObject *tuple, std::vector<Stays> &stays)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
        Py_ssize_t position;
        PyObject *address;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(tuple, i), "nO", &position, &address))
            return false;
        stays.push_back({static_cast<size_t>(position), PyLong_AsVoidPtr(address)});
        if (PyErr_Occurred())
            return false;
    }
    return true;
}

/* Reads which inputs have dimensions that are made of several sizes, and how. */
bool read_merged(PyObject *tuple, std::vector<Input> &inputs)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
        Py_ssize_t number;
        PyObject *places, *caps, *groups;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(tuple, i), "nO!O!O!", &number, &PyTuple_Type, &places, &PyTuple_Type,
                              &caps, &PyTuple_Type, &groups) ||
            !read_apart(places, caps, groups, inputs.at(number).apart))
            return false;
    }
    return true;
}

/* Notes which of the graph's copies are those of which inputs and results. */
void find_nodes(Plan &plan, const Copies &copies)
{
    std::vector<bool> taken(copies.size());
    for (Input &input : plan.inputs)
        if (input.apart.empty())
            input.node = copies.find(input.buffer.const_data_ptr(), taken);
    for (Result &result : plan.results) {
        if (result.kind == Kind::CLONE)
            result.node = copies.find(result.tensor.const_data_ptr(), taken);
        if (result.kind == Kind::PART && result.apart.empty() && result.memory < 0 && !plan.answers)
            result.node = copies.find(plan.tensors.at(result.place).const_data_ptr(), taken);
    }
}

/* Reads what the constructor was given into the plan. */
bool prepare(Launch *self, PyObject *positions, PyObject *buffers, PyObject *merged, PyObject *stays, PyObject *each,
             PyObject *places, PyObject *tensors)
{
    Plan &plan = *self->plan;
    std::vector<size_t> at;
    std::vector<at::Tensor> targets;
    if (!read_places(positions, at) || !read_tensors(buffers, targets) || !read_stays(stays, plan.stays) ||
        !read_tensors(each, plan.each) ||
        !read_places(places, plan.places) || !read_tensors(tensors, plan.tensors) ||
        !read_results(self->results, plan.results))
        return false;
    for (size_t i = 0; i < at.size(); i++)
        plan.inputs.push_back({at[i], targets.at(i), plan.least && targets[i].nbytes() >= plan.least, -1, {}});
    if (!read_merged(merged, plan.inputs))
        return false;
    for (const Input &input : plan.inputs)
        TORCH_CHECK(input.apart.empty() || input.buffer.is_contiguous(), "a buffer with merged sizes has gaps");
    for (const Result &result : plan.results) {
        plan.answers = plan.answers || (result.kind == Kind::PART && plan.tensors.empty());
        plan.memories = std::max(plan.memories, static_cast<size_t>(result.memory + 1));
    }
    if (self->copies)
        find_nodes(plan, *self->copies);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(self->lifted); i++) {
        PyObject *tensor = PyTuple_GET_ITEM(self->lifted, i);
        plan.lifted.push_back({tensor, THPVariable_Unpack(tensor).const_data_ptr()});
    }
    return true;
}

PyObject *launch_new(PyTypeObject *type, PyObject *args, PyObject *)
{
    PyObject *positions, *buffers, *merged, *stays, *true_sizes, *each, *places, *lifted, *replay, *tensors, *results;
    PyObject *copies;
    long worth;
    Py_ssize_t least;
    PyTypeObject *tuple = &PyTuple_Type;
    if (!PyArg_ParseTuple(args, "O!O!O!O!OO!O!O!OO!O!lnO", tuple, &positions, tuple, &buffers, tuple, &merged, tuple,
                          &stays, &true_sizes, tuple, &each, tuple, &places, tuple, &lifted, &replay, tuple, &tensors,
                          tuple, &results, &worth, &least, &copies))
        return nullptr;
    if (copies != Py_None && !symshape::as_copies(copies)) {
        PyErr_SetString(PyExc_TypeError, "these are no copies");
        return nullptr;
    }
    auto *self = reinterpret_cast<Launch *>(type->tp_alloc(type, 0));
    if (!self)
        return nullptr;
    self->call = launch_call;
    self->replay = Py_NewRef(replay);
    self->true_sizes = Py_NewRef(true_sizes);
    self->lifted = Py_NewRef(lifted);
    self->results = Py_NewRef(results);
    self->copies = copies == Py_None ? nullptr : symshape::as_copies(Py_NewRef(copies));
    bool ready = false;
    try {
        self->plan = new Plan;
        self->plan->worth = worth;
        self->plan->least = least;
        ready = prepare(self, positions, buffers, merged, stays, each, places, tensors);
    } catch (const std::exception &) {
        torch::translate_exception_to_python(std::current_exception());
    }
    if (!ready)
        Py_CLEAR(self);
    return reinterpret_cast<PyObject *>(self);
}

int launch_traverse(PyObject *object, visitproc visit, void *arg)
{
    auto *self = reinterpret_cast<Launch *>(object);
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->replay);
    Py_VISIT(self->true_sizes);
    Py_VISIT(self->lifted);
    Py_VISIT(self->results);
    Py_VISIT(reinterpret_cast<PyObject *>(self->copies));
    return 0;
}

int launch_clear(PyObject *object)
{
    auto *self = reinterpret_cast<Launch *>(object);
    Plan *plan = std::exchange(self->plan, nullptr);  // it points into the tuples
    delete plan;
    Py_CLEAR(self->replay);
    Py_CLEAR(self->true_sizes);
    Py_CLEAR(self->lifted);
    Py_CLEAR(self->results);
    PyObject *copies = reinterpret_cast<PyObject *>(std::exchange(self->copies, nullptr));
    Py_XDECREF(copies);
    return 0;
}

void launch_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    launch_clear(object);
    type->tp_free(object);
    Py_DECREF(type);
}

PyObject *launch_repeated(PyObject *object, void *)
{
    const auto *self = reinterpret_cast<Launch *>(object);
    return PyLong_FromLong(self->plan ? self->plan->repeated : 0);
}

PyGetSetDef GETSET[] = {
    {"repeated", launch_repeated, nullptr, "How many calls in a row had their inputs where the last one has them.",
     nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyMemberDef MEMBERS[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Launch, call), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot SLOTS[] = {
    {Py_tp_doc, const_cast<char *>("Serves calls by one graph: launch(leaves, numbers), or None with nothing done.")},
    {Py_tp_new, reinterpret_cast<void *>(launch_new)},
    {Py_tp_call, reinterpret_cast<void *>(PyVectorcall_Call)},
    {Py_tp_members, MEMBERS},
    {Py_tp_getset, GETSET},
    {Py_tp_traverse, reinterpret_cast<void *>(launch_traverse)},
    {Py_tp_clear, reinterpret_cast<void *>(launch_clear)},
    {Py_tp_dealloc, reinterpret_cast<void *>(launch_dealloc)},
    {0, nullptr},
};

PyType_Spec SPEC = {"symshape.runtime.runners.compiled_launch.Launch", sizeof(Launch), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_HAVE_VECTORCALL,
                    SLOTS};

PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "compiled_launch", "From a call to the launch of its graph.", -1};

}  // namespace

PyMODINIT_FUNC PyInit_compiled_launch(void)
{
    HELD = PyUnicode_InternFromString("held");
    PyObject *nn = PyImport_ImportModule("torch.nn.parameter");
    PARAMETER = nn ? PyObject_GetAttrString(nn, "Parameter") : nullptr;
    Py_XDECREF(nn);
    if (!HELD || !PARAMETER)
        return nullptr;
    PyObject *module = PyModule_Create(&MODULE), *type = PyType_FromSpec(&SPEC);
    PyObject *copies = PyType_FromSpec(&symshape::COPIES_SPEC);  // stays as long as the process
    symshape::COPIES = reinterpret_cast<PyTypeObject *>(copies);
    if (!module || !type || !copies || PyModule_AddObjectRef(module, "Launch", type) < 0 ||
        PyModule_AddObjectRef(module, "Copies", copies) < 0 ||
        PyModule_AddStringConstant(module, "TORCH", SYMSHAPE_TORCH) < 0)
        Py_CLEAR(module);
    Py_XDECREF(type);
    return module;
}
