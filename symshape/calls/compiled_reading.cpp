/* The exact key of a flat call in one pass over its leaves (symshape/calls/call_key.py).

   `Maker(otherwise, …)(leaves, kwargs)` answers a string of bytes, which says torch's modes, the names of keyword
   arguments and all of each leaf but its integers, these integers, and the nest of the arguments if a leaf is one. Calls
   with equal answers have equal keys by `otherwise`, which makes the key of whatever is out of the ordinary: in Python,
   where each question is a call into another corner of torch.

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
#include <vector>

namespace {

constexpr Py_ssize_t MOST = 16;  // leaves, as in call_key.py

/* Classes of leaves that stand for something else, as `_plain` in call_key.py takes them. */
struct Kinds {
    PyObject *nest, *taken, *float_leaf, *varying_float;
};

struct Reading {
    const Kinds &kinds;
    PyObject *nest = nullptr;  // borrowed
    std::string rest;
    std::vector<int64_t> values;
    PyObject *tensors[MOST];
    size_t count = 0;

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

    /* Whether no leaf before was this very tensor. */
    bool is_new(PyObject *object)
    {
        for (size_t i = 0; i < count; i++)
            if (tensors[i] == object)
                return false;
        tensors[count++] = object;
        return true;
    }

    /* A tensor whose layout its sizes tell; no other. */
    bool tensor(PyObject *object)
    {
        if (!is_new(object))
            return false;
        const c10::TensorImpl *impl = THPVariable_Unpack(object).unsafeGetTensorImpl();
        if (impl->has_symbolic_sizes_strides() || impl->layout() != c10::kStrided || impl->is_nested() ||
            impl->key_set().has(c10::DispatchKey::Python))
            return false;
        const c10::ScalarType dtype = c10::typeMetaToScalarType(impl->dtype());
        const auto sizes = impl->sizes(), strides = impl->strides();
        if (c10::isComplexType(dtype) || c10::isQIntType(dtype) || impl->storage_offset())
            return false;
        int64_t expected = 1;
        for (size_t d = sizes.size(); d-- > 0; expected *= sizes[d])
            if (sizes[d] < 2 || strides[d] != expected)
                return false;
        say('T');
        say(static_cast<uint32_t>(sizes.size()));
        say(dtype);
        say(impl->device().type());
        say(impl->device().index());
        say(impl->requires_grad());
        say(impl->key_set().raw_repr());
        values.insert(values.end(), sizes.begin(), sizes.end());
        return true;
    }

    bool leaf(PyObject *object)
    {
        if (reinterpret_cast<PyObject *>(Py_TYPE(object)) == THPVariableClass)
            return tensor(object);
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
        say('v');
        return kind == kinds.varying_float || (kind == kinds.float_leaf && is_new(object));
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
        PyObject *found = bytes ? PyTuple_Pack(nest ? 3 : 2, bytes, integers, nest) : nullptr;
        Py_XDECREF(bytes);
        Py_XDECREF(integers);
        return found;
    }
};

bool read(Reading &reading, PyObject *leaves, PyObject *kwargs)
{
    if (!PyTuple_Check(leaves) || PyTuple_GET_SIZE(leaves) > MOST || !PyDict_Check(kwargs) || !reading.modes())
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
    if (!PyArg_ParseTuple(args, "OOOOO", &otherwise, &kinds.nest, &kinds.taken, &kinds.float_leaf, &kinds.varying_float))
        return nullptr;
    auto *self = reinterpret_cast<Maker *>(type->tp_alloc(type, 0));
    if (self) {
        self->otherwise = Py_NewRef(otherwise);
        for (PyObject *kind : {kinds.nest, kinds.taken, kinds.float_leaf, kinds.varying_float})
            Py_INCREF(kind);
        self->kinds = kinds;
        self->call = make;
    }
    return reinterpret_cast<PyObject *>(self);
}

int maker_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(object));
    auto *self = reinterpret_cast<Maker *>(object);
    Py_VISIT(self->otherwise);
    for (PyObject *kind : {self->kinds.nest, self->kinds.taken, self->kinds.float_leaf, self->kinds.varying_float})
        Py_VISIT(kind);
    return 0;
}

int maker_clear(PyObject *object)
{
    auto *self = reinterpret_cast<Maker *>(object);
    Py_CLEAR(self->otherwise);
    Py_CLEAR(self->kinds.nest);
    Py_CLEAR(self->kinds.taken);
    Py_CLEAR(self->kinds.float_leaf);
    Py_CLEAR(self->kinds.varying_float);
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

PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "compiled_reading", "Exact keys of flat calls.", -1};

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
