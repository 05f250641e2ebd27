/* Copies of a call as nodes of its graph (symshape/runtime/runners/cuda/copies_in_graph.py), from this call's memory to that.

   A copy of its own costs the host about 5 us and its launch; a node's addresses are set in about one, and are copied
   from when the graph is launched: whatever was launched before keeps its own.  A node that is off does nothing. */

#pragma once

#include <Python.h>
#include <ATen/core/Tensor.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <exception>
#include <utility>
#include <vector>

namespace symshape {

/* CUDA_MEMCPY3D of the driver's interface (cuda.h), whose layout is the same since CUDA 4. */
struct Extent {
    size_t x, y, z, lod;
    unsigned int kind;
    const void *host;
    uintptr_t address;
    void *array, *reserved;
    size_t pitch, height;
};
struct Copied {
    Extent from, to;
    size_t width, height, depth;
};
static_assert(sizeof(Copied) == 200, "the driver's structure");
constexpr unsigned int ON_DEVICE = 2;  // CU_MEMORYTYPE_DEVICE

struct Node {
    void *handle;
    const void *address;  // of the graph's own memory that it copies to, or from
    bool on = true;
};

struct Copies {
    PyObject_HEAD
    PyObject *graph;  // whose nodes these are
    int (*set)(void *, void *, const Copied *, void *);
    int (*enable)(void *, void *, unsigned int);
    int (*start)(void *, void *);
    void *executable, *context;
    long device;  // where the graph can be launched from here; -1: a replay of torch's does more than that
    std::vector<Node> *nodes;
    const void *user;  // whose nodes are on

    size_t size() const { return nodes->size(); }

    /* The node of so many that copies to or from this address; -1 for none. */
    long find(const void *address, std::vector<bool> &taken) const
    {
        for (size_t i = 0; i < nodes->size(); i++)
            if ((*nodes)[i].address == address && !taken[i]) {
                taken[i] = true;
                return static_cast<long>(i);
            }
        return -1;
    }

    void turn_off(size_t place)
    {
        Node &node = (*nodes)[place];
        if (!node.on)
            return;
        const int code = enable(executable, node.handle, 0);
        TORCH_CHECK(code == 0, "a copy of a CUDA graph cannot be left out: CUDA driver error ", code);
        node.on = false;
    }

    void turn_off_all()
    {
        for (size_t i = 0; i < nodes->size(); i++)
            turn_off(i);
        user = nullptr;
    }

    /* From now on the node makes this copy; false, and it is off, where the driver has it not. */
    bool give(size_t place, const void *from, void *to, size_t bytes)
    {
        Node &node = (*nodes)[place];
        Copied copied{};
        copied.from.kind = copied.to.kind = ON_DEVICE;
        copied.from.address = reinterpret_cast<uintptr_t>(from);
        copied.to.address = reinterpret_cast<uintptr_t>(to);
        copied.from.pitch = copied.to.pitch = copied.width = bytes;
        copied.from.height = copied.to.height = copied.height = copied.depth = 1;
        if (set(executable, node.handle, &copied, context)) {
            turn_off(place);
            return false;
        }
        if (!node.on)
            node.on = enable(executable, node.handle, 1) == 0;
        return node.on;
    }

    /* Launches the graph on the current stream; false, with nothing done, where that is for torch to do. */
    bool launch() const
    {
        if (device < 0)
            return false;
        const c10::impl::VirtualGuardImpl current(c10::DeviceType::CUDA);
        const c10::Device here = current.getDevice();
        if (here.index() != device)
            return false;
        const int code = start(executable, current.getStreamNativeHandle(current.getStream(here)));
        TORCH_CHECK(code == 0, "a CUDA graph cannot be launched: CUDA driver error ", code);
        return true;
    }
};

inline PyTypeObject *COPIES;

inline Copies *as_copies(PyObject *object)
{
    return COPIES && Py_TYPE(object) == COPIES ? reinterpret_cast<Copies *>(object) : nullptr;
}

inline void *pointer(PyObject *number)
{
    return PyLong_AsVoidPtr(number);
}

inline PyObject *copies_new(PyTypeObject *type, PyObject *args, PyObject *)
{
    PyObject *graph, *set, *enable, *start, *executable, *context, *handles, *addresses;
    long device;
    if (!PyArg_ParseTuple(args, "OOOOOOO!O!l", &graph, &set, &enable, &start, &executable, &context, &PyTuple_Type,
                          &handles, &PyTuple_Type, &addresses, &device))
        return nullptr;
    auto *self = reinterpret_cast<Copies *>(type->tp_alloc(type, 0));
    if (!self)
        return nullptr;
    self->graph = Py_NewRef(graph);
    self->set = reinterpret_cast<decltype(self->set)>(pointer(set));
    self->enable = reinterpret_cast<decltype(self->enable)>(pointer(enable));
    self->start = reinterpret_cast<decltype(self->start)>(pointer(start));
    self->executable = pointer(executable);
    self->context = pointer(context);
    self->device = device;
    try {
        self->nodes = new std::vector<Node>;
        const Py_ssize_t count = PyTuple_GET_SIZE(handles);
        if (count != PyTuple_GET_SIZE(addresses))
            PyErr_SetString(PyExc_ValueError, "each node has an address");
        for (Py_ssize_t i = 0; !PyErr_Occurred() && i < count; i++)
            self->nodes->push_back({pointer(PyTuple_GET_ITEM(handles, i)), pointer(PyTuple_GET_ITEM(addresses, i))});
        if (!PyErr_Occurred())
            self->turn_off_all();
    } catch (const std::exception &error) {
        PyErr_SetString(PyExc_RuntimeError, error.what());
    }
    if (PyErr_Occurred())
        Py_CLEAR(self);
    return reinterpret_cast<PyObject *>(self);
}

inline int copies_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(reinterpret_cast<Copies *>(object)->graph);
    return 0;
}

inline void copies_dealloc(PyObject *object)
{
    auto *self = reinterpret_cast<Copies *>(object);
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    delete std::exchange(self->nodes, nullptr);
    Py_CLEAR(self->graph);
    type->tp_free(object);
    Py_DECREF(type);
}

inline PyObject *copies_turn_off(PyObject *object, PyObject *)
{
    try {
        reinterpret_cast<Copies *>(object)->turn_off_all();
    } catch (const std::exception &error) {
        PyErr_SetString(PyExc_RuntimeError, error.what());
        return nullptr;
    }
    Py_RETURN_NONE;
}

inline PyObject *copies_on(PyObject *object, void *)
{
    long count = 0;
    for (const Node &node : *reinterpret_cast<Copies *>(object)->nodes)
        count += node.on;
    return PyLong_FromLong(count);
}

inline PyMethodDef COPIES_METHODS[] = {
    {"turn_off", copies_turn_off, METH_NOARGS, "From now on a launch copies nothing."},
    {nullptr, nullptr, 0, nullptr},
};

inline PyGetSetDef COPIES_GETSET[] = {
    {"on", copies_on, nullptr, "How many nodes copy at the next launch.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

inline PyType_Slot COPIES_SLOTS[] = {
    {Py_tp_doc, const_cast<char *>("Copies(graph, set, enable, launch, executable, context, nodes, addresses, device)")},
    {Py_tp_new, reinterpret_cast<void *>(copies_new)},
    {Py_tp_methods, COPIES_METHODS},
    {Py_tp_getset, COPIES_GETSET},
    {Py_tp_traverse, reinterpret_cast<void *>(copies_traverse)},
    {Py_tp_dealloc, reinterpret_cast<void *>(copies_dealloc)},
    {0, nullptr},
};

inline PyType_Spec COPIES_SPEC = {"symshape.runtime.runners.compiled_launch.Copies", sizeof(Copies), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE, COPIES_SLOTS};

}  // namespace symshape
