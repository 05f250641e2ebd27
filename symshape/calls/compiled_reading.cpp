/* The exact key of a flat call in one pass over its leaves (symshape/calls/call_key.py).

   `Maker(otherwise, …)(leaves, kwargs)` answers a string of bytes, which says torch's modes, the names of keyword
   arguments and all of each leaf but its integers, these integers, the nest of the arguments if a leaf is one, and the
   constants that are no number or text. Calls with equal answers have equal keys by `otherwise`, which makes the key of
   whatever is out of the ordinary: in Python, where each question is a call into another corner of torch.

   setup.py builds this against the torch that is installed, and `TORCH` says which: it is used with no other. */

#include <Python.h>
#include <structmember.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/core/Tensor.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/python_variable.h>

#include <cmath>
#include <cstddef>
#include <exception>
#include <limits>
#include <string>
#include <unordered_map>
#include <vector>

namespace {

constexpr size_t FEW = 32;  // objects that are looked through one by one

/* Classes of leaves, as `_plain` in call_key.py takes them: what stands for something else, parameters, a set of those
   whose objects are keys as they are; and the function that answers the key of any other constant, or None. */
struct Kinds {
    PyObject *nest, *taken, *float_leaf, *varying_float, *parameter, *as_they_are, *constant;
};
constexpr size_t KINDS = sizeof(Kinds) / sizeof(PyObject *);

struct Reading {
    const Kinds &kinds;
    PyObject *nest = nullptr;  // borrowed
    std::string rest;
    std::vector<int64_t> values;
    std::vector<PyObject *> objects;  // tensors and constants so far, borrowed
    std::unordered_map<PyObject *, size_t> places;  // the first of each, where they are many
    size_t placed = 0;
    std::vector<PyObject *> constants;  // their keys, owned

    explicit Reading(const Kinds &of) : kinds(of) {}
    Reading(const Reading &) = delete;
    ~Reading()
    {
        for (PyObject *each : constants)
            Py_DECREF(each);
    }

    template <typename T> void say(T value) { rest.append(reinterpret_cast<const char *>(&value), sizeof value); }

    /* Torch's modes; false where a mode asks for more than grad, inference and the default dtype. */
    bool modes()
    {
        const c10::impl::LocalDispatchKeySet now = c10::impl::tls_local_dispatch_key_set();
        const bool autocast = !((now.excluded_ & c10::autocast_dispatch_keyset) == c10::autocast_dispatch_keyset);
        if (autocast || now.included_.has(c10::DispatchKey::Python) ||
            now.included_.has(c10::DispatchKey::FuncTorchDynamicLayerFrontMode) ||
            at::impl::PythonTorchFunctionTLS::stack_len() > 0)
            return false;
        say(c10::GradMode::is_enabled());
        say(c10::InferenceMode::is_enabled());
        say(c10::typeMetaToScalarType(c10::get_default_dtype()));
        return true;
    }

    /* Says whether a leaf before was this very tensor or object, and which. */
    void say_again(PyObject *object)
    {
        const size_t next = objects.size();
        size_t first = 0;
        if (next < FEW) {
            while (first < next && objects[first] != object)
                first++;
        } else {
            for (; placed < next; placed++)
                places.emplace(objects[placed], placed);
            if (auto found = places.find(object); found != places.end())
                first = found->second;
            else
                first = next;
        }
        objects.push_back(object);
        if (first < next) {
            say('=');
            say(first);
        }
    }

    bool tensor(PyObject *object, char kind)
    {
        const c10::TensorImpl *impl = THPVariable_Unpack(object).unsafeGetTensorImpl();
        const c10::DispatchKeySet keys = impl->key_set();
        if (impl->has_symbolic_sizes_strides() || impl->layout() != c10::kStrided || impl->is_nested() ||
            keys.has(c10::DispatchKey::Python) || keys.has(c10::DispatchKey::Negative))
            return false;
        const c10::ScalarType dtype = c10::typeMetaToScalarType(impl->dtype());
        const auto sizes = impl->sizes(), strides = impl->strides();
        if (c10::isComplexType(dtype) || c10::isQIntType(dtype))
            return false;
        bool fresh = true;  // the strides are those of a new tensor: see `is_canonical` in arguments.py
        int64_t expected = 1;
        for (size_t d = sizes.size(); d-- > 0; expected *= sizes[d] ? sizes[d] : 1)
            fresh = fresh && strides[d] == expected;
        say_again(object);
        say(kind);
        say(fresh ? impl->storage_offset() ? 'o' : 'c' : 's');
        say(static_cast<uint32_t>(sizes.size()));
        say(dtype);
        say(impl->device().type());
        say(impl->device().index());
        say(impl->requires_grad());
        say(keys.raw_repr());
        values.insert(values.end(), sizes.begin(), sizes.end());
        if (!fresh)
            values.insert(values.end(), strides.begin(), strides.end());
        if (!fresh || impl->storage_offset())
            values.push_back(impl->storage_offset());
        return true;
    }

    bool leaf(PyObject *object)
    {
        if (reinterpret_cast<PyObject *>(Py_TYPE(object)) == THPVariableClass)
            return tensor(object, 'T');
        if (object == Py_None || object == Py_True || object == Py_False) {
            say(object == Py_None ? 'N' : object == Py_True ? '1' : '0');
            return true;
        }
        if (PyFloat_CheckExact(object))
            return number(PyFloat_AS_DOUBLE(object));
        if (PyUnicode_CheckExact(object))
            return text('s', object);
        if (!PyLong_CheckExact(object))
            return stand_in(object);
        int overflow = 0;
        values.push_back(PyLong_AsLongLongAndOverflow(object, &overflow));
        say('i');
        return !overflow;
    }

    /* Every zero and number apart; of the NaNs, as their texts are, those of either sign. */
    bool number(double value)
    {
        say('f');
        say(std::isnan(value) ? std::copysign(std::numeric_limits<double>::quiet_NaN(), value) : value);
        return true;
    }

    bool stand_in(PyObject *object)
    {
        PyObject *kind = reinterpret_cast<PyObject *>(Py_TYPE(object));
        if (kind == kinds.nest && !nest) {
            nest = object;
            say('n');
            return true;
        }
        if (kind == kinds.taken) {
            say('t');
            return true;
        }
        if (kind == kinds.varying_float || kind == kinds.float_leaf) {
            say('v');
            if (kind == kinds.float_leaf)
                say_again(object);
            return true;
        }
        return kind == kinds.parameter ? tensor(object, 'P') : constant(object, kind);
    }

    bool constant(PyObject *object, PyObject *kind)
    {
        const int as_it_is = PySet_Contains(kinds.as_they_are, kind);
        PyObject *key = as_it_is > 0 ? Py_NewRef(object) : as_it_is ? nullptr : PyObject_CallOneArg(kinds.constant, object);
        if (!key)
            return false;
        constants.push_back(key);
        if (key == Py_None)
            return false;
        if (!as_it_is)
            say_again(object);
        say(as_it_is ? 'p' : 'k');
        return true;
    }

    bool text(char kind, PyObject *object)
    {
        Py_ssize_t size;
        const char *bytes = PyUnicode_AsUTF8AndSize(object, &size);
        if (!bytes)
            return false;
        say(kind);
        say(size);
        rest.append(bytes, size);
        return true;
    }

    PyObject *answer() const
    {
        PyObject *integers = PyTuple_New(values.size());
        for (size_t i = 0; integers && i < values.size(); i++) {
            PyObject *each = PyLong_FromLongLong(values[i]);
            if (!each)
                Py_CLEAR(integers);
            else
                PyTuple_SET_ITEM(integers, i, each);
        }
        PyObject *bytes = integers ? PyBytes_FromStringAndSize(rest.data(), rest.size()) : nullptr;
        PyObject *found = bytes ? PyTuple_New(2 + (nest != nullptr) + constants.size()) : nullptr;
        if (found) {
            Py_ssize_t place = 0;
            PyTuple_SET_ITEM(found, place++, Py_NewRef(bytes));
            PyTuple_SET_ITEM(found, place++, Py_NewRef(integers));
            if (nest)
                PyTuple_SET_ITEM(found, place++, Py_NewRef(nest));
            for (PyObject *each : constants)
                PyTuple_SET_ITEM(found, place++, Py_NewRef(each));
        }
        Py_XDECREF(bytes);
        Py_XDECREF(integers);
        return found;
    }
};

bool read(Reading &reading, PyObject *leaves, PyObject *kwargs)
{
    if (!PyTuple_Check(leaves) || !PyDict_Check(kwargs) || !reading.modes())
        return false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(leaves); i++)
        if (!reading.leaf(PyTuple_GET_ITEM(leaves, i)))
            return false;
    Py_ssize_t place = 0;
    for (PyObject *name, *value; PyDict_Next(kwargs, &place, &name, &value);)
        if (!reading.text('K', name))
            return false;
    return true;
}

struct Maker {
    PyObject_HEAD
    PyObject *otherwise;
    Kinds kinds;
    vectorcallfunc call;
};

PyObject **all(Maker *maker)
{
    return reinterpret_cast<PyObject **>(&maker->kinds);
}

PyObject *make(PyObject *object, PyObject *const *args, size_t count, PyObject *names)
{
    if (names || PyVectorcall_NARGS(count) != 2) {
        PyErr_SetString(PyExc_TypeError, "a key is made of leaves and keyword arguments");
        return nullptr;
    }
    const auto *self = reinterpret_cast<const Maker *>(object);
    Reading reading{self->kinds};
    bool ordinary = false;
    try {
        reading.rest.reserve(160);
        ordinary = read(reading, args[0], args[1]);
    } catch (const std::exception &) {  // a tensor without sizes
    }
    if (PyErr_Occurred()) {
        PyErr_Clear();
        ordinary = false;
    }
    return ordinary ? reading.answer() : PyObject_Vectorcall(self->otherwise, args, 2, nullptr);
}

PyObject *maker_new(PyTypeObject *type, PyObject *args, PyObject *)
{
    PyObject *otherwise;
    Kinds kinds;
    if (!PyArg_ParseTuple(args, "OOOOOOOO", &otherwise, &kinds.nest, &kinds.taken, &kinds.float_leaf,
                          &kinds.varying_float, &kinds.parameter, &kinds.as_they_are, &kinds.constant))
        return nullptr;
    auto *self = reinterpret_cast<Maker *>(type->tp_alloc(type, 0));
    if (self) {
        self->otherwise = Py_NewRef(otherwise);
        self->kinds = kinds;
        for (PyObject **each = all(self); each < all(self) + KINDS; each++)
            Py_INCREF(*each);
        self->call = make;
    }
    return reinterpret_cast<PyObject *>(self);
}

int maker_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(object));
    auto *self = reinterpret_cast<Maker *>(object);
    Py_VISIT(self->otherwise);
    for (PyObject **each = all(self); each < all(self) + KINDS; each++)
        Py_VISIT(*each);
    return 0;
}

int maker_clear(PyObject *object)
{
    auto *self = reinterpret_cast<Maker *>(object);
    Py_CLEAR(self->otherwise);
    for (PyObject **each = all(self); each < all(self) + KINDS; each++)
        Py_CLEAR(*each);
    return 0;
}

void maker_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    maker_clear(object);
    type->tp_free(object);
    Py_DECREF(type);
}

PyMemberDef MEMBERS[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Maker, call), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot SLOTS[] = {
    {Py_tp_doc, const_cast<char *>("Makes the exact keys of flat calls: maker(leaves, kwargs).")},
    {Py_tp_new, reinterpret_cast<void *>(maker_new)},
    {Py_tp_call, reinterpret_cast<void *>(PyVectorcall_Call)},
    {Py_tp_members, MEMBERS},
    {Py_tp_traverse, reinterpret_cast<void *>(maker_traverse)},
    {Py_tp_clear, reinterpret_cast<void *>(maker_clear)},
    {Py_tp_dealloc, reinterpret_cast<void *>(maker_dealloc)},
    {0, nullptr},
};

PyType_Spec SPEC = {"symshape.calls.compiled_reading.Maker", sizeof(Maker), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_HAVE_VECTORCALL,
                    SLOTS};

/* Python's own number for what a class and its bases hold: it is taken away by any change, and none is given twice. */
PyObject *class_version(PyObject *, PyObject *object)
{
    if (!PyType_Check(object))
        return PyLong_FromLong(0);
    const auto *kind = reinterpret_cast<PyTypeObject *>(object);
#if PY_VERSION_HEX < 0x030C0000
    if (!PyType_HasFeature(const_cast<PyTypeObject *>(kind), Py_TPFLAGS_VALID_VERSION_TAG))
        return PyLong_FromLong(0);
#endif
    return PyLong_FromUnsignedLong(kind->tp_version_tag);
}

PyMethodDef FUNCTIONS[] = {
    {"class_version", class_version, METH_O, "A number that changes with what a class and its bases hold; 0: unknown."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "compiled_reading", "Exact keys of flat calls.", -1, FUNCTIONS};

}  // namespace

PyMODINIT_FUNC PyInit_compiled_reading(void)
{
    PyObject *module = PyModule_Create(&MODULE), *type = PyType_FromSpec(&SPEC);
    if (!module || !type || PyModule_AddObjectRef(module, "Maker", type) < 0 ||
        PyModule_AddStringConstant(module, "TORCH", SYMSHAPE_TORCH) < 0)
        Py_CLEAR(module);
    Py_XDECREF(type);
    return module;
}
