/* What each call asks of tensors and dictionaries, in one pass over them (symshape/tracing/state/compiled.py).

   `Metadata(tensors)` notes the dispatch keys (which tell device and layout, conjugation and negation), dtype, device,
   requires_grad, sizes and strides of each, and `same()` compares: 10 to 20 ns a tensor, where torch's own check takes
   100 to 250 (it fills a table of all tensors and allocates for each). A tensor is read through its Python object at
   each call, since another may have been swapped in. `Versions(dicts)` does the same with the numbers that CPython 3.11
   gives to every change of a dictionary. `Pointers(places)` compares what functions, classes and variables of closures
   refer to: asked through Python, from 3.12 on each attribute of a function takes 300 ns.

   setup.py builds this against the torch that is installed, and `TORCH` says which: it is used with no other. Only
   torch's core is included: with the rest it would compile for half a minute. */

#include <Python.h>
#include <structmember.h>
#include <c10/core/TensorImpl.h>

#include <algorithm>
#include <new>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace {

struct Noted {
    PyObject *object;  // kept alive by the tuple
    PyTypeObject *kind;  // kept alive by Python's note of it (compare/tensor_metadata.py)
    c10::DispatchKeySet keys;
    c10::ScalarType dtype;
    c10::Device device;
    bool requires_grad;
    size_t dims;  // its sizes, then its strides, are the next of `integers`
};

struct Metadata {
    PyObject_HEAD
    PyObject *tensors;  // a tuple
    std::vector<Noted> *noted;
    std::vector<int64_t> *integers;
};

/* A tensor of Python's begins with a pointer to what it is in C++ (`note` makes sure of it for each). */
struct PythonTensor {
    PyObject_HEAD
    c10::TensorImpl *impl;
};

inline c10::TensorImpl *impl_of(PyObject *object)
{
    return reinterpret_cast<PythonTensor *>(object)->impl;
}

bool is_tensor(PyObject *object)
{
    PyObject *address = PyObject_GetAttrString(object, "_cdata");
    void *said = address ? PyLong_AsVoidPtr(address) : nullptr;
    Py_XDECREF(address);
    if (PyErr_Occurred())
        PyErr_Clear();
    return said && static_cast<size_t>(Py_TYPE(object)->tp_basicsize) >= sizeof(PythonTensor) && said == impl_of(object);
}

inline void append(std::vector<int64_t> &integers, c10::IntArrayRef values)
{
    integers.insert(integers.end(), values.begin(), values.end());
}

/* Notes one tensor; false for one that has no sizes and strides of its own. */
bool note(Metadata *self, PyObject *object)
{
    if (!is_tensor(object))
        return false;
    const c10::TensorImpl *impl = impl_of(object);
    if (impl->has_symbolic_sizes_strides() || impl->layout() != c10::kStrided || impl->is_nested() ||
        impl->key_set().has(c10::DispatchKey::Python))
        return false;
    self->noted->push_back({object, Py_TYPE(object), impl->key_set(), c10::typeMetaToScalarType(impl->dtype()), impl->device(),
                            impl->requires_grad(), impl->sizes().size()});
    append(*self->integers, impl->sizes());
    append(*self->integers, impl->strides());
    return true;
}

/* Asks for the memory of all tensors at once: after other work none of it is near the processor. */
void fetch(const Metadata *self)
{
    constexpr size_t LINE = 64;
    for (const Noted &then : *self->noted)
        __builtin_prefetch(then.object);
    for (const Noted &then : *self->noted) {
        const auto *memory = reinterpret_cast<const char *>(impl_of(then.object));
        for (size_t at = 0; at < sizeof(c10::TensorImpl); at += LINE)
            __builtin_prefetch(memory + at);
    }
}

bool compare(const Metadata *self)
{
    fetch(self);
    const int64_t *integers = self->integers->data();
    for (const Noted &then : *self->noted) {
        const c10::TensorImpl *now = impl_of(then.object);
        if (Py_TYPE(then.object) != then.kind || !(now->key_set() == then.keys) || now->device() != then.device ||
            now->requires_grad() != then.requires_grad || c10::typeMetaToScalarType(now->dtype()) != then.dtype)
            return false;
        const auto sizes = now->sizes(), strides = now->strides();
        if (sizes.size() != then.dims)
            return false;
        for (size_t d = 0; d < then.dims; d++)
            if (sizes[d] != integers[d] || strides[d] != integers[then.dims + d])
                return false;
        integers += 2 * then.dims;
    }
    return true;
}

PyObject *metadata_same(PyObject *self, PyObject *)
{
    bool found = false;
    try {
        found = compare(reinterpret_cast<Metadata *>(self));
    } catch (...) {  // sizes became symbolic
    }
    return PyBool_FromLong(found);
}

PyObject *metadata_new(PyTypeObject *type, PyObject *args, PyObject *)
{
    PyObject *tensors;
    if (!PyArg_ParseTuple(args, "O!", &PyTuple_Type, &tensors))
        return nullptr;
    auto *self = reinterpret_cast<Metadata *>(type->tp_alloc(type, 0));
    if (!self)
        return nullptr;
    self->tensors = Py_NewRef(tensors);
    bool fit = true;
    try {
        self->noted = new std::vector<Noted>;
        self->integers = new std::vector<int64_t>;
        for (Py_ssize_t i = 0; fit && i < PyTuple_GET_SIZE(tensors); i++) {
            fit = note(self, PyTuple_GET_ITEM(tensors, i));
        }
    } catch (...) {
        fit = false;
    }
    if (!fit) {
        PyErr_SetString(PyExc_TypeError, "only tensors of strided memory with sizes of their own are compared here");
        Py_DECREF(self);
        return nullptr;
    }
    return reinterpret_cast<PyObject *>(self);
}

int metadata_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(reinterpret_cast<Metadata *>(object)->tensors);
    return 0;
}

int metadata_clear(PyObject *object)
{
    auto *self = reinterpret_cast<Metadata *>(object);
    if (self->noted)
        self->noted->clear();  // it points into the tuple
    Py_CLEAR(self->tensors);
    return 0;
}

void metadata_dealloc(PyObject *object)
{
    auto *self = reinterpret_cast<Metadata *>(object);
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    metadata_clear(object);
    delete self->noted;
    delete self->integers;
    type->tp_free(object);
    Py_DECREF(type);
}

PyMethodDef METHODS[] = {
    {"same", metadata_same, METH_NOARGS, "Whether every tensor has the metadata that it had."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot SLOTS[] = {
    {Py_tp_doc, const_cast<char *>("The metadata of a tuple of tensors at one moment.")},
    {Py_tp_new, reinterpret_cast<void *>(metadata_new)},
    {Py_tp_methods, METHODS},
    {Py_tp_traverse, reinterpret_cast<void *>(metadata_traverse)},
    {Py_tp_clear, reinterpret_cast<void *>(metadata_clear)},
    {Py_tp_dealloc, reinterpret_cast<void *>(metadata_dealloc)},
    {0, nullptr},
};

PyType_Spec SPEC = {"symshape.tracing.state.compiled_checks.Metadata", sizeof(Metadata), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE, SLOTS};

PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "compiled_checks", "Whether tensors still have their metadata.", -1};

/* Whether dictionaries were written at all.  CPython 3.11 numbers every change, and no number comes twice; later
   versions may write attributes past the number, and call a watcher before each change instead. */
struct Versions {
    PyObject_HEAD
    PyObject *dicts;  // a tuple
    std::vector<uint64_t> *noted;  // 3.11: the number of each; later: 1 for those that were written
    std::vector<PyObject *> *by_address;  // 3.11: the dictionaries by address: memory is read fastest in order
    uint64_t sum;  // 3.11: the sum of all numbers.  A number only grows, so an equal sum means equal numbers
    bool written;  // whether any was, where a watcher tells
};

#if PY_VERSION_HEX < 0x030C0000

bool can_watch()
{
    return true;
}

inline uint64_t number_of(PyObject *dict)
{
    return reinterpret_cast<PyDictObject *>(dict)->ma_version_tag;
}

uint64_t sum_of(const std::vector<PyObject *> &dicts)
{
    uint64_t sum = 0;
    for (PyObject *dict : dicts)
        sum += number_of(dict);
    return sum;
}

bool begin(Versions *self)
{
    for (size_t i = 0; i < self->noted->size(); i++)
        (*self->noted)[i] = number_of(PyTuple_GET_ITEM(self->dicts, i));
    PyObject *const *dicts = &PyTuple_GET_ITEM(self->dicts, 0);
    self->by_address = new (std::nothrow) std::vector<PyObject *>(dicts, dicts + self->noted->size());
    if (!self->by_address) {
        PyErr_NoMemory();
        return false;
    }
    std::sort(self->by_address->begin(), self->by_address->end());
    self->sum = sum_of(*self->by_address);
    return true;
}

void end(Versions *) {}

inline bool any_written(const Versions *self)
{
    return sum_of(*self->by_address) != self->sum;
}

inline bool is_written(const Versions *self, size_t i)
{
    return (*self->noted)[i] != number_of(PyTuple_GET_ITEM(self->dicts, i));
}

#else

using Watchers = std::vector<std::pair<Versions *, size_t>>;

int watcher = -1;
auto *const watched = new std::unordered_map<PyObject *, Watchers>();  // outlives the interpreter's last objects

int note_write(PyDict_WatchEvent, PyObject *dict, PyObject *, PyObject *)
{
    const auto found = watched->find(dict);
    if (found != watched->end())
        for (const auto &[self, i] : found->second) {
            self->written = true;
            (*self->noted)[i] = 1;
        }
    return 0;
}

bool can_watch()
{
    watcher = PyDict_AddWatcher(note_write);
    if (watcher < 0)
        PyErr_Clear();  // an interpreter has eight of them
    return watcher >= 0;
}

bool begin(Versions *self)
{
    for (size_t i = 0; i < self->noted->size(); i++) {
        PyObject *dict = PyTuple_GET_ITEM(self->dicts, i);
        (*watched)[dict].emplace_back(self, i);
        if (PyDict_Watch(watcher, dict) < 0)
            return false;
    }
    return true;
}

void end(Versions *self)
{
    PyObject *error = PyErr_GetRaisedException();
    for (size_t i = 0; i < self->noted->size(); i++) {
        PyObject *dict = PyTuple_GET_ITEM(self->dicts, i);
        const auto found = watched->find(dict);
        if (found == watched->end())
            continue;
        Watchers &left = found->second;
        left.erase(std::remove_if(left.begin(), left.end(), [self](const auto &each) { return each.first == self; }),
                   left.end());
        if (!left.empty())
            continue;
        watched->erase(found);
        if (PyDict_Unwatch(watcher, dict) < 0)  // the interpreter ends and has no watchers any more
            PyErr_Clear();
    }
    PyErr_SetRaisedException(error);
}

inline bool any_written(const Versions *self)
{
    return self->written;
}

inline bool is_written(const Versions *self, size_t i)
{
    return (*self->noted)[i] != 0;
}

#endif

int versions_clear(PyObject *object)
{
    auto *self = reinterpret_cast<Versions *>(object);
    if (self->dicts && self->noted)
        end(self);
    Py_CLEAR(self->dicts);
    return 0;
}

PyObject *versions_new(PyTypeObject *type, PyObject *args, PyObject *)
{
    PyObject *dicts;
    if (!PyArg_ParseTuple(args, "O!", &PyTuple_Type, &dicts))
        return nullptr;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(dicts); i++)
        if (!PyDict_Check(PyTuple_GET_ITEM(dicts, i))) {
            PyErr_SetString(PyExc_TypeError, "only dictionaries can be watched");
            return nullptr;
        }
    auto *self = reinterpret_cast<Versions *>(type->tp_alloc(type, 0));
    if (!self)
        return nullptr;
    self->dicts = Py_NewRef(dicts);
    self->written = false;
    self->noted = new (std::nothrow) std::vector<uint64_t>(PyTuple_GET_SIZE(dicts));
    if (!self->noted)
        PyErr_NoMemory();
    if (!self->noted || !begin(self)) {
        Py_DECREF(self);
        return nullptr;
    }
    return reinterpret_cast<PyObject *>(self);
}

PyObject *versions_unchanged(PyObject *object, PyObject *)
{
    const auto *self = reinterpret_cast<Versions *>(object);
    return PyBool_FromLong(self->dicts && !any_written(self));
}

PyObject *versions_written(PyObject *object, PyObject *)
{
    const auto *self = reinterpret_cast<Versions *>(object);
    const size_t size = self->noted->size();
    PyObject *found = PyList_New(size);
    for (size_t i = 0; found && i < size; i++)
        PyList_SET_ITEM(found, i, PyBool_FromLong(!self->dicts || is_written(self, i)));
    return found;
}

int versions_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(reinterpret_cast<Versions *>(object)->dicts);
    return 0;
}

void versions_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    versions_clear(object);
    delete reinterpret_cast<Versions *>(object)->noted;
    delete reinterpret_cast<Versions *>(object)->by_address;
    type->tp_free(object);
    Py_DECREF(type);
}

PyMethodDef VERSIONS_METHODS[] = {
    {"unchanged", versions_unchanged, METH_O, "Whether none of the dictionaries was written; the argument is ignored."},
    {"written", versions_written, METH_NOARGS, "Of each dictionary, whether it was written."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot VERSIONS_SLOTS[] = {
    {Py_tp_doc, const_cast<char *>("A tuple of dictionaries, watched for writes from now on.")},
    {Py_tp_new, reinterpret_cast<void *>(versions_new)},
    {Py_tp_methods, VERSIONS_METHODS},
    {Py_tp_traverse, reinterpret_cast<void *>(versions_traverse)},
    {Py_tp_clear, reinterpret_cast<void *>(versions_clear)},
    {Py_tp_dealloc, reinterpret_cast<void *>(versions_dealloc)},
    {0, nullptr},
};

PyType_Spec VERSIONS_SPEC = {"symshape.tracing.state.compiled_checks.Versions", sizeof(Versions), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE, VERSIONS_SLOTS};

bool add_versions(PyObject *module)
{
    if (!can_watch())
        return PyModule_AddObjectRef(module, "Versions", Py_None) == 0;
    PyObject *type = PyType_FromSpec(&VERSIONS_SPEC);
    const bool added = type && PyModule_AddObjectRef(module, "Versions", type) == 0;
    Py_XDECREF(type);
    return added;
}

/* What functions, classes, objects and variables of closures refer to: where each reference lies, and what it was. */
struct Pointer {
    PyObject **where;  // in an object that the tuple of places keeps alive
    PyObject *expected;  // kept alive by that tuple, too; NULL where Python reads None and C keeps nothing
};

struct Pointers {
    PyObject_HEAD
    PyObject *places;  // a tuple of tuples
    std::vector<Pointer> *noted;
};

/* Where an object of C keeps a reference (`func` of a partial): a member that reads as None while it is NULL. */
PyObject **member_of(PyObject *owner, const char *name)
{
    PyObject *found = PyObject_GetAttrString(reinterpret_cast<PyObject *>(Py_TYPE(owner)), name);
    if (!found) {
        PyErr_Clear();
        return nullptr;
    }
    PyObject **where = nullptr;
    if (Py_IS_TYPE(found, &PyMemberDescr_Type)) {
        const PyMemberDef *member = reinterpret_cast<PyMemberDescrObject *>(found)->d_member;
        if (member->type == T_OBJECT && member->offset > 0 && member->offset < Py_TYPE(owner)->tp_basicsize)
            where = reinterpret_cast<PyObject **>(reinterpret_cast<char *>(owner) + member->offset);
    }
    Py_DECREF(found);
    return where;
}

/* Where the reference lies that Python reads as this attribute; the attribute of a variable is empty.  NULL for any
   other.  A class that an object gets later has the same layout: Python makes sure of it. */
PyObject **reference(PyObject *owner, const char *name)
{
    const std::string_view key = name;
    if (PyFunction_Check(owner)) {
        auto *function = reinterpret_cast<PyFunctionObject *>(owner);
        if (key == "__code__")
            return &function->func_code;
        if (key == "__defaults__")
            return &function->func_defaults;
        if (key == "__kwdefaults__")
            return &function->func_kwdefaults;
    }
    if (PyType_Check(owner) && key == "__mro__")
        return &reinterpret_cast<PyTypeObject *>(owner)->tp_mro;
    if (PyCell_Check(owner) && key.empty())
        return &reinterpret_cast<PyCellObject *>(owner)->ob_ref;
    if (key == "__class__")
        return reinterpret_cast<PyObject **>(&owner->ob_type);
    if (key == "__dict__")
        return PyType_Check(owner) ? nullptr : _PyObject_GetDictPtr(owner);
    return member_of(owner, name);
}

/* Notes (owner, attribute, value); false for a place that is no reference. */
bool note_pointer(Pointers *self, PyObject *place)
{
    PyObject *owner, *value;
    const char *name;
    if (!PyTuple_Check(place) || !PyArg_ParseTuple(place, "OsO", &owner, &name, &value))
        return false;
    PyObject **where = reference(owner, name);
    if (!where)
        return false;
    self->noted->push_back({where, *where || value != Py_None || !*name ? value : nullptr});
    return true;
}

PyObject *pointers_new(PyTypeObject *type, PyObject *args, PyObject *)
{
    PyObject *places;
    if (!PyArg_ParseTuple(args, "O!", &PyTuple_Type, &places))
        return nullptr;
    auto *self = reinterpret_cast<Pointers *>(type->tp_alloc(type, 0));
    if (!self)
        return nullptr;
    self->places = Py_NewRef(places);
    bool fit = true;
    try {
        self->noted = new std::vector<Pointer>;
        for (Py_ssize_t i = 0; fit && i < PyTuple_GET_SIZE(places); i++)
            fit = note_pointer(self, PyTuple_GET_ITEM(places, i));
        std::sort(self->noted->begin(), self->noted->end(),  // the class and the dictionary of an object lie together
                  [](const Pointer &one, const Pointer &other) { return one.where < other.where; });
    } catch (...) {
        fit = false;
    }
    if (!fit) {
        PyErr_SetString(PyExc_TypeError, "only references of functions, classes, objects of C and variables of closures are compared here");
        Py_DECREF(self);
        return nullptr;
    }
    return reinterpret_cast<PyObject *>(self);
}

PyObject *pointers_same(PyObject *object, PyObject *)
{
    const auto *self = reinterpret_cast<Pointers *>(object);
    if (!self->places)
        Py_RETURN_FALSE;
    bool same = true;
    for (const Pointer &each : *self->noted)
        same &= *each.where == each.expected;
    return PyBool_FromLong(same);
}

int pointers_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(reinterpret_cast<Pointers *>(object)->places);
    return 0;
}

int pointers_clear(PyObject *object)
{
    auto *self = reinterpret_cast<Pointers *>(object);
    if (self->noted)
        self->noted->clear();
    Py_CLEAR(self->places);
    return 0;
}

void pointers_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    pointers_clear(object);
    delete reinterpret_cast<Pointers *>(object)->noted;
    type->tp_free(object);
    Py_DECREF(type);
}

PyMethodDef POINTERS_METHODS[] = {
    {"same", pointers_same, METH_NOARGS, "Whether each place refers to the very object that it was noted with."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot POINTERS_SLOTS[] = {
    {Py_tp_doc, const_cast<char *>("What functions, classes, objects and variables of closures refer to.")},
    {Py_tp_new, reinterpret_cast<void *>(pointers_new)},
    {Py_tp_methods, POINTERS_METHODS},
    {Py_tp_traverse, reinterpret_cast<void *>(pointers_traverse)},
    {Py_tp_clear, reinterpret_cast<void *>(pointers_clear)},
    {Py_tp_dealloc, reinterpret_cast<void *>(pointers_dealloc)},
    {0, nullptr},
};

PyType_Spec POINTERS_SPEC = {"symshape.tracing.state.compiled_checks.Pointers", sizeof(Pointers), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE, POINTERS_SLOTS};

bool add_pointers(PyObject *module)
{
#ifdef Py_GIL_DISABLED
    return PyModule_AddObjectRef(module, "Pointers", Py_None) == 0;
#else
    PyObject *type = PyType_FromSpec(&POINTERS_SPEC);
    const bool added = type && PyModule_AddObjectRef(module, "Pointers", type) == 0;
    Py_XDECREF(type);
    return added;
#endif
}

}  // namespace

PyMODINIT_FUNC PyInit_compiled_checks(void)
{
    PyObject *module = PyModule_Create(&MODULE), *type = PyType_FromSpec(&SPEC);
    if (!module || !type || PyModule_AddObjectRef(module, "Metadata", type) < 0 ||
        PyModule_AddStringConstant(module, "TORCH", SYMSHAPE_TORCH) < 0 || !add_versions(module) ||
        !add_pointers(module))
        Py_CLEAR(module);
    Py_XDECREF(type);
    return module;
}
