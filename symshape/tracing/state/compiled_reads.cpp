/* What instrumented code calls at each look-up, and how a recording notes it (symshape/tracing/state/compiled.py).

   `Reads` is what `symshape/tracing/state/record/reads.py` writes in Python: the notes of a recording, and `touch`,
   `namespace`, `entry` and `absent`, which add to them. `load_attr` and `load_global` are the hooks of `hooks.py`, and
   `of_object` what `loads.py` does with the attributes of objects. Each does the common cases itself (a plain
   attribute, a method, a parameter or a submodule) and hands all others to the function in Python that `setup` was
   given, so that what is noted is the same either way: tests/symshape/tracing/state/record/test_reads.py compares.

   setup.py builds this for CPython with a lock; it needs nothing of torch's. */

#include <Python.h>
#include <structmember.h>

#include <initializer_list>

namespace {

// -- what `setup` was given
struct Given {
    PyObject *missing, *cell, *namespace_class, *versions, *symbolic, *followed, *not_touched;
    PyObject *hooks, *quiet, *wrapped_names, *wrapped, *instead;
    PyObject *readers, *load_attr, *load_global, *of_object, *of_nothing, *member, *member_of, *tables;
    PyObject *symbolic_tensor, *of_every_tensor;
    Py_ssize_t cell_owner, cell_key, cell_value, cell_name;
    Py_ssize_t space_name, space_owner, space_own, space_kind, space_before, space_untouched, space_open, space_given;
    Py_ssize_t member_found, member_of_module, member_plain;
} given;

PyObject *s_active, *s_dict, *s_dot, *s_unchanged, *s_get, *s_touch_made, *s_still;
PyObject *own_of_object;  // the function below, as an object

struct Reads {
    PyObject_HEAD
    PyObject *places, *containers, *names, *namespaces, *known, *pinned, *told, *members, *seen, *handlers;
    PyObject *handler_for, *read, *asker;
    unsigned long thread;
    char fresh, alone, busy, weakly;
};

PyTypeObject *reads_type;

bool is_set_up(PyObject *const *last);

/* An owned reference that goes at the end of its block. */
struct Owned {
    PyObject *object;
    explicit Owned(PyObject *object) : object(object) {}
    Owned(const Owned &) = delete;
    Owned &operator=(const Owned &) = delete;
    ~Owned() { Py_XDECREF(object); }
    operator PyObject *() const { return object; }
    PyObject *release()
    {
        PyObject *found = object;
        object = nullptr;
        return found;
    }
};

inline PyObject *&slot(PyObject *object, Py_ssize_t offset)
{
    return *reinterpret_cast<PyObject **>(reinterpret_cast<char *>(object) + offset);
}

inline void fill(PyObject *object, Py_ssize_t offset, PyObject *value)
{
    slot(object, offset) = Py_NewRef(value);
}

inline PyObject *id_of(PyObject *object)
{
    return PyLong_FromVoidPtr(object);
}

PyObject *where_of(PyObject *owner, PyObject *key)
{
    PyObject *id = id_of(owner);
    if (!id)
        return nullptr;
    PyObject *where = PyTuple_New(2);
    if (!where) {
        Py_DECREF(id);
        return nullptr;
    }
    PyTuple_SET_ITEM(where, 0, id);
    PyTuple_SET_ITEM(where, 1, Py_NewRef(key));
    return where;
}

/* What a dictionary holds under the id of an object; borrowed. */
PyObject *by_id(PyObject *dict, PyObject *object)
{
    Owned id(id_of(object));
    return id ? PyDict_GetItemWithError(dict, id) : nullptr;
}

bool is_subtype_of_any(PyTypeObject *type, PyObject *types)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(types); i++)
        if (PyType_IsSubtype(type, reinterpret_cast<PyTypeObject *>(PyTuple_GET_ITEM(types, i))))
            return true;
    return false;
}

/* `name.key`, or the key alone. */
PyObject *full_name(PyObject *name, PyObject *key)
{
    if (!PyUnicode_Check(name) || !PyUnicode_Check(key))
        return PyUnicode_FromFormat("%S.%S", name, key);
    if (PyUnicode_GET_LENGTH(name) == 0)
        return Py_NewRef(key);
    Owned head(PyUnicode_Concat(name, s_dot));
    return head ? PyUnicode_Concat(head, key) : nullptr;
}

/* What a dictionary holds, `MISSING` if nothing; owned. */
PyObject *get(PyObject *dict, PyObject *key)
{
    if (PyDict_CheckExact(dict)) {
        PyObject *found = PyDict_GetItemWithError(dict, key);
        if (!found && PyErr_Occurred())
            return nullptr;
        return Py_NewRef(found ? found : given.missing);
    }
    return PyObject_CallMethodObjArgs(dict, s_get, key, given.missing, nullptr);
}

// -- the notes of a recording
bool add_cell(Reads *self, PyObject *owner, PyObject *key, PyObject *value, PyObject *name)
{
    auto *type = reinterpret_cast<PyTypeObject *>(given.cell);
    Owned cell(type->tp_alloc(type, 0));
    if (!cell)
        return false;
    fill(cell, given.cell_owner, owner);
    fill(cell, given.cell_key, key);
    fill(cell, given.cell_value, value);
    fill(cell, given.cell_name, name);
    return PyList_Append(self->places, cell) == 0;
}

PyObject *make_namespace(PyObject *name, PyObject *owner, PyObject *own)
{
    if (!PyDict_CheckExact(owner))
        return PyObject_CallFunctionObjArgs(given.namespace_class, name, owner, own, nullptr);
    auto *type = reinterpret_cast<PyTypeObject *>(given.namespace_class);
    Owned made(type->tp_alloc(type, 0));
    if (!made)
        return nullptr;
    Owned untouched(Py_NewRef(Py_None));
    if (given.versions != Py_None) {  // first: what another thread writes meanwhile is seen
        Owned dicts(PyTuple_Pack(1, owner));
        Owned versions(dicts ? PyObject_CallOneArg(given.versions, dicts) : nullptr);
        PyObject *asking = versions ? PyObject_GetAttr(versions, s_unchanged) : nullptr;
        if (!asking)
            return nullptr;
        Py_SETREF(untouched.object, asking);
    }
    Owned before(PyDict_Copy(owner));
    if (!before)
        return nullptr;
    fill(made, given.space_name, name);
    fill(made, given.space_owner, owner);
    fill(made, given.space_own, own);
    fill(made, given.space_kind, Py_None);
    fill(made, given.space_before, before);
    fill(made, given.space_untouched, untouched);
    fill(made, given.space_open, Py_False);
    fill(made, given.space_given, Py_False);
    return made.release();
}

/* How a dictionary was when it was first met; owned. */
PyObject *namespace_of(Reads *self, PyObject *name, PyObject *owner, PyObject *own)
{
    Owned id(id_of(owner));
    if (!id)
        return nullptr;
    PyObject *found = PyDict_GetItemWithError(self->namespaces, id);
    if (found || PyErr_Occurred())
        return Py_XNewRef(found);
    Owned made(make_namespace(name, owner, own));
    return made && PyDict_SetItem(self->namespaces, id, made) == 0 ? made.release() : nullptr;
}

bool touch(Reads *self, PyObject *value, PyObject *name, bool placed)
{
    PyTypeObject *type = Py_TYPE(value);
    PyObject *handler = PyDict_GetItemWithError(self->handlers, reinterpret_cast<PyObject *>(type));
    if (!handler) {
        if (PyErr_Occurred())
            return false;
        Owned made(PyObject_CallOneArg(self->handler_for, reinterpret_cast<PyObject *>(type)));
        if (!made || PyDict_SetItem(self->handlers, reinterpret_cast<PyObject *>(type), made) < 0)
            return false;
        handler = made;  // the table keeps it
    }
    const bool nothing = handler == Py_None;
    if (nothing && placed)
        return true;
    Owned id(id_of(value));
    if (!id)
        return false;
    if (!placed) {
        const int follows = PyObject_IsInstance(value, given.followed);
        if (follows < 0 || (follows && PySet_Add(self->pinned, id) < 0))
            return false;
    }
    if (nothing)
        return true;
    const int known = PyDict_Contains(self->known, id);
    if (known)
        return known > 0;
    if (PyDict_SetItem(self->known, id, value) < 0)
        return false;
    Owned kept(Py_NewRef(handler));
    PyObject *arguments[] = {reinterpret_cast<PyObject *>(self), value, name};
    Owned done(PyObject_Vectorcall(kept, arguments, 3, nullptr));
    return done != nullptr;
}

/* What a namespace held when it was met; borrowed. */
inline PyObject *before_of(PyObject *space)
{
    PyObject *before = Py_IS_TYPE(space, reinterpret_cast<PyTypeObject *>(given.namespace_class))
                           ? slot(space, given.space_before)
                           : nullptr;
    if (!before)
        PyErr_SetString(PyExc_TypeError, "not a Namespace");
    return before;
}

bool entry(Reads *self, PyObject *owner, PyObject *key, PyObject *name, PyObject *space)
{
    Owned where(where_of(owner, key));
    const int seen = where ? PyDict_Contains(self->seen, where) : -1;
    if (seen < 0)
        return false;
    if (seen) {
        if (self->alone)
            return true;
        Owned done(PyObject_CallMethodObjArgs(reinterpret_cast<PyObject *>(self), s_still, owner, key, name, nullptr));
        return done != nullptr;
    }
    Owned value(get(owner, key));
    PyObject *before = value ? before_of(space) : nullptr;
    Owned then(before ? get(before, key) : nullptr);
    if (!then)
        return false;
    if (then.object != value.object) {
        Owned done(
            PyObject_CallMethodObjArgs(reinterpret_cast<PyObject *>(self), s_touch_made, value.object, name, nullptr));
        return done != nullptr;
    }
    if (PyDict_SetItem(self->seen, where, owner) < 0)
        return false;
    if (!is_subtype_of_any(Py_TYPE(value), given.symbolic) && !add_cell(self, owner, key, value, name))
        return false;
    if (!self->alone && PyDict_SetItem(self->read, where, value) < 0)
        return false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(given.not_touched); i++)
        if (PyTuple_GET_ITEM(given.not_touched, i) == value.object)
            return true;
    return touch(self, value, name, true);
}

bool absent(Reads *self, PyObject *name, PyObject *owner, PyObject *key, PyObject *space)
{
    PyObject *before = before_of(space);
    const int held = before ? PyDict_Contains(before, key) : -1;
    if (held)
        return held > 0;
    Owned where(where_of(owner, key));
    const int seen = where ? PyDict_Contains(self->seen, where) : -1;
    if (seen)
        return seen > 0;
    if (PyDict_SetItem(self->seen, where, owner) < 0)
        return false;
    Owned full(full_name(name, key));
    return full && add_cell(self, owner, key, given.missing, full);
}

/* Whether a place is noted; -1 for an error. */
int is_seen(Reads *self, PyObject *owner, PyObject *key)
{
    Owned where(where_of(owner, key));
    return where ? PyDict_Contains(self->seen, where) : -1;
}

// -- attributes of objects
enum Outcome { FAILED = -1, LEFT = 0, DONE = 1, DONE_FOR_GOOD = 2 };  // LEFT: to Python, nothing is noted yet

/* A parameter, a buffer or a submodule, or nothing, in the tables of a module. */
Outcome in_tables(Reads *self, PyObject *attributes, PyObject *label, PyObject *key, PyObject *full)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(given.tables); i++) {
        PyObject *found = PyDict_GetItemWithError(attributes, PyTuple_GET_ITEM(given.tables, i));
        if (!found && PyErr_Occurred())
            return FAILED;
        if (!found || found == Py_None)
            continue;
        Owned table(Py_NewRef(found));
        Owned then(namespace_of(self, label, table, Py_True));
        const int held = then ? PySequence_Contains(table, key) : -1;
        if (held < 0 || !(held ? entry(self, table, key, full, then) : absent(self, label, table, key, then)))
            return FAILED;
        const int seen = is_seen(self, table, key);
        if (seen < 0)
            return FAILED;
        if (held || !seen)
            return seen ? DONE_FOR_GOOD : DONE;
    }
    return DONE_FOR_GOOD;
}

Outcome read_attribute(Reads *self, PyObject *owner, PyObject *key)
{
    auto *kind = reinterpret_cast<PyObject *>(Py_TYPE(owner));
    Owned which(where_of(kind, key));
    PyObject *found = which ? PyDict_GetItemWithError(self->members, which) : nullptr;
    if (!found && PyErr_Occurred())
        return FAILED;
    Owned member(found ? Py_NewRef(found)
                       : PyObject_CallFunctionObjArgs(given.member_of, reinterpret_cast<PyObject *>(self), kind, key,
                                                      nullptr));
    if (!member)
        return FAILED;
    if (slot(member, given.member_plain) != Py_True)
        return LEFT;
    const bool of_module = slot(member, given.member_of_module) == Py_True;
    PyObject *in_class = slot(member, given.member_found);
    Owned itself(id_of(owner));
    const int known = itself ? PyDict_Contains(self->known, itself) : -1;
    if (known <= 0)  // made while tracing: what it holds was loaded, or made, as well
        return known < 0 ? FAILED : DONE;
    Owned attributes(PyObject_GenericGetAttr(owner, s_dict));
    if (!attributes || !PyDict_CheckExact(attributes.object)) {
        PyErr_Clear();
        return LEFT;
    }
    PyObject *space = by_id(self->namespaces, attributes);
    if (!space)
        return PyErr_Occurred() ? FAILED : LEFT;
    Owned before(Py_NewRef(space));
    PyObject *called = PyDict_GetItemWithError(self->names, itself);
    if (!called && PyErr_Occurred())
        return FAILED;
    Owned class_name(PyType_GetName(Py_TYPE(owner)));
    if (!class_name)
        return FAILED;
    Owned name(Py_NewRef(called ? called : class_name.object));
    const bool unnamed = PyUnicode_Check(name.object) && PyUnicode_GET_LENGTH(name.object) == 0;
    PyObject *label = unnamed ? class_name.object : name.object;
    Owned full(full_name(name, key));
    const int held = full ? PyDict_Contains(attributes, key) : -1;
    if (held < 0)
        return FAILED;
    if (held) {
        if (!entry(self, attributes, key, full, before))
            return FAILED;
    } else {
        if (!absent(self, label, attributes, key, before))
            return FAILED;
        if (of_module && in_class == given.missing) {
            const Outcome outcome = in_tables(self, attributes, label, key, full);
            if (outcome != DONE_FOR_GOOD)
                return outcome;
        }
    }
    if (!self->alone)
        return DONE;
    const int seen = is_seen(self, attributes, key);
    return seen < 0 ? FAILED : seen ? DONE_FOR_GOOD : DONE;
}

/* What is done with an attribute of an object of a class of Python's; false for an error. */
bool of_object(Reads *self, PyObject *owner, PyObject *key)
{
    const Outcome outcome = read_attribute(self, owner, key);
    if (outcome == LEFT) {
        Owned done(
            PyObject_CallFunctionObjArgs(given.of_object, reinterpret_cast<PyObject *>(self), owner, key, nullptr));
        return done != nullptr;
    }
    if (outcome == DONE_FOR_GOOD) {
        Owned where(where_of(owner, key));
        return where && PyDict_SetItem(self->told, where, owner) == 0;
    }
    return outcome == DONE;
}

// -- the hooks
/* The recording of this thread, if it records now; borrowed. `failed` is set by an error. */
Reads *recording_now(bool *failed)
{
    PyObject *active = PyDict_GetItemWithError(given.hooks, s_active);
    if (!active) {
        *failed = PyErr_Occurred() != nullptr;
        return nullptr;
    }
    if (active == Py_None || !PyObject_TypeCheck(active, reads_type))
        return nullptr;
    auto *reads = reinterpret_cast<Reads *>(active);
    return !reads->busy && reads->thread == PyThread_get_thread_ident() ? reads : nullptr;
}

void note_asker(Reads *self)
{
    PyFrameObject *frame = PyEval_GetFrame();
    if (!frame)
        return;
    PyCodeObject *code = PyFrame_GetCode(frame);
    Py_XSETREF(self->asker, Py_NewRef(code->co_filename));
    Py_DECREF(code);
}

bool note_load(Reads *self, PyObject *owner, PyObject *name)
{
    PyTypeObject *kind = Py_TYPE(owner);
    note_asker(self);
    if (kind == reinterpret_cast<PyTypeObject *>(given.symbolic_tensor)) {
        Owned where(PyTuple_Pack(2, given.of_every_tensor, name));
        const int seen = where ? PyDict_Contains(self->seen, where) : -1;
        if (seen)
            return seen > 0;
    }
    PyObject *reader = PyDict_GetItemWithError(given.readers, reinterpret_cast<PyObject *>(kind));
    if (!reader && PyErr_Occurred())
        return false;
    if (reader == given.of_nothing)
        return true;
    if (reader == own_of_object)
        return of_object(self, owner, name);
    Owned done(
        PyObject_CallFunctionObjArgs(given.load_attr, reinterpret_cast<PyObject *>(self), owner, name, nullptr));
    return done != nullptr;
}

/* A value, or what stands for it while tracing; takes the reference. */
PyObject *instead_of(PyObject *value)
{
    if (!value)
        return nullptr;
    PyObject *other = by_id(given.instead, value);
    if (other) {
        Py_INCREF(other);
        Py_DECREF(value);
        return other;
    }
    if (PyErr_Occurred())
        Py_CLEAR(value);
    return value;
}

PyObject *load_attr(PyObject *, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "load_attr(owner, name)");
        return nullptr;
    }
    PyObject *owner = arguments[0], *name = arguments[1];
    if (!given.instead && !is_set_up(&given.instead))
        return nullptr;
    bool failed = false;
    Reads *self = recording_now(&failed);
    if (failed)
        return nullptr;
    if (!self)
        return PyObject_GetAttr(owner, name);
    Owned kept(Py_NewRef(reinterpret_cast<PyObject *>(self)));
    const int quiet = PySet_Contains(given.quiet, reinterpret_cast<PyObject *>(Py_TYPE(owner)));
    if (quiet < 0)
        return nullptr;
    if (!quiet) {
        Owned where(where_of(owner, name));
        const int told = where ? PyDict_Contains(self->told, where) : -1;
        if (told < 0)
            return nullptr;
        if (!told) {
            self->busy = 1;
            const bool noted = note_load(self, owner, name);
            self->busy = 0;
            if (!noted)
                return nullptr;
        }
    }
    const int wrapped = PySet_Contains(given.wrapped_names, name);
    if (wrapped < 0)
        return nullptr;
    if (wrapped)
        return PyObject_CallFunctionObjArgs(given.wrapped, owner, name, nullptr);
    return instead_of(PyObject_GetAttr(owner, name));
}

PyObject *load_global(PyObject *, PyObject *name)
{
    PyObject *names = PyEval_GetGlobals(), *builtins = PyEval_GetBuiltins();  // of who calls; borrowed
    if (!names || !builtins) {
        PyErr_SetString(PyExc_RuntimeError, "no code of Python's loads a global");
        return nullptr;
    }
    if (!given.instead && !is_set_up(&given.instead))
        return nullptr;
    Owned own(Py_NewRef(names)), behind(Py_NewRef(builtins));
    bool failed = false;
    Reads *self = recording_now(&failed);
    if (failed)
        return nullptr;
    Owned kept(Py_XNewRef(reinterpret_cast<PyObject *>(self)));
    if (self) {
        const int seen = is_seen(self, names, name);
        if (seen < 0)
            return nullptr;
        if (!seen || !self->alone) {
            self->busy = 1;
            note_asker(self);
            Owned done(PyObject_CallFunctionObjArgs(given.load_global, reinterpret_cast<PyObject *>(self), name, names,
                                                    builtins, nullptr));
            self->busy = 0;
            if (!done)
                return nullptr;
        }
    }
    PyObject *value;
    if (PyDict_CheckExact(names)) {
        value = Py_XNewRef(PyDict_GetItemWithError(names, name));
    } else {
        const int held = PySequence_Contains(names, name);
        if (held < 0)
            return nullptr;
        value = held ? PyObject_GetItem(names, name) : nullptr;
    }
    if (!value && !PyErr_Occurred()) {
        value = get(builtins, name);
        if (value == given.missing) {
            Py_DECREF(value);
            Owned message(PyUnicode_FromFormat("name %R is not defined", name));
            Owned arguments(message ? PyTuple_Pack(1, message.object) : nullptr);
            Owned named(arguments ? Py_BuildValue("{s:O}", "name", name) : nullptr);
            Owned error(named ? PyObject_Call(PyExc_NameError, arguments, named) : nullptr);
            if (error)
                PyErr_SetObject(PyExc_NameError, error);
            return nullptr;
        }
    }
    return self ? instead_of(value) : value;
}

// -- as methods and functions
PyObject *none_or_null(bool done)
{
    return done ? Py_NewRef(Py_None) : nullptr;
}

PyObject *reads_touch(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static const char *names[] = {"value", "name", "placed", nullptr};
    PyObject *value, *name;
    int placed = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|p", const_cast<char **>(names), &value, &name, &placed))
        return nullptr;
    return none_or_null(touch(reinterpret_cast<Reads *>(self), value, name, placed != 0));
}

PyObject *reads_namespace(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static const char *names[] = {"name", "owner", "own", nullptr};
    PyObject *name, *owner, *own = Py_True;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO|O", const_cast<char **>(names), &name, &owner, &own))
        return nullptr;
    return namespace_of(reinterpret_cast<Reads *>(self), name, owner, own);
}

PyObject *reads_entry(PyObject *self, PyObject *args)
{
    PyObject *owner, *key, *name, *space;
    if (!PyArg_ParseTuple(args, "OOOO", &owner, &key, &name, &space))
        return nullptr;
    return none_or_null(entry(reinterpret_cast<Reads *>(self), owner, key, name, space));
}

PyObject *reads_absent(PyObject *self, PyObject *args)
{
    PyObject *name, *owner, *key, *space;
    if (!PyArg_ParseTuple(args, "OOOO", &name, &owner, &key, &space))
        return nullptr;
    return none_or_null(absent(reinterpret_cast<Reads *>(self), name, owner, key, space));
}

PyObject *module_of_object(PyObject *, PyObject *args)
{
    PyObject *reads, *owner, *key;
    if (!is_set_up(&given.of_every_tensor) || !PyArg_ParseTuple(args, "O!OO", reads_type, &reads, &owner, &key))
        return nullptr;
    return none_or_null(of_object(reinterpret_cast<Reads *>(reads), owner, key));
}

#define EACH_OBJECT(X)                                                                                              \
    X(places) X(containers) X(names) X(namespaces) X(known) X(pinned) X(told) X(members) X(seen) X(handlers)        \
    X(handler_for) X(read) X(asker)

PyObject *reads_new(PyTypeObject *type, PyObject *, PyObject *)
{
    if (!is_set_up(&given.not_touched))
        return nullptr;
    auto *self = reinterpret_cast<Reads *>(type->tp_alloc(type, 0));
    if (!self)
        return nullptr;
    self->places = PyList_New(0);
    self->containers = PyList_New(0);
    self->pinned = PySet_New(nullptr);
    for (PyObject **each : {&self->names, &self->namespaces, &self->known, &self->told, &self->members, &self->seen,
                            &self->handlers, &self->read})
        *each = PyDict_New();
    self->handler_for = Py_NewRef(Py_None);
    self->asker = PyUnicode_FromString("");
    self->alone = 1;
    self->thread = PyThread_get_thread_ident();
#define MADE(name)                                                                                                  \
    if (!self->name) {                                                                                              \
        Py_DECREF(self);                                                                                            \
        return nullptr;                                                                                             \
    }
    EACH_OBJECT(MADE)
#undef MADE
    return reinterpret_cast<PyObject *>(self);
}

int reads_traverse(PyObject *object, visitproc visit, void *arg)
{
    auto *self = reinterpret_cast<Reads *>(object);
    Py_VISIT(Py_TYPE(object));
#define VISIT(name) Py_VISIT(self->name);
    EACH_OBJECT(VISIT)
#undef VISIT
    return 0;
}

int reads_clear(PyObject *object)
{
    auto *self = reinterpret_cast<Reads *>(object);
#define CLEAR(name) Py_CLEAR(self->name);
    EACH_OBJECT(CLEAR)
#undef CLEAR
    return 0;
}

void reads_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    reads_clear(object);
    type->tp_free(object);
    Py_DECREF(type);
}

PyMethodDef METHODS[] = {
    {"touch", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(reads_touch)), METH_VARARGS | METH_KEYWORDS,
     "A value that was there before the trace, or may have been, was loaded: what it leads to is looked at."},
    {"namespace", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(reads_namespace)),
     METH_VARARGS | METH_KEYWORDS, "How a dictionary was when it was first met."},
    {"entry", reads_entry, METH_VARARGS,
     "An entry of a dictionary was read; it is no place if the trace itself wrote there before it read."},
    {"absent", reads_absent, METH_VARARGS, "A name was looked for in a dictionary and was not there."},
    {nullptr, nullptr, 0, nullptr},
};

#define OBJECT(name) {#name, T_OBJECT_EX, offsetof(Reads, name), 0, nullptr}
#define FLAG(name) {#name, T_BOOL, offsetof(Reads, name), 0, nullptr}
PyMemberDef MEMBERS[] = {
    OBJECT(places), OBJECT(containers), OBJECT(names), OBJECT(namespaces), OBJECT(known), OBJECT(pinned),
    OBJECT(told), OBJECT(members), OBJECT(seen), OBJECT(asker),
    {"_handler_for", T_OBJECT_EX, offsetof(Reads, handler_for), 0, nullptr},
    {"_read", T_OBJECT_EX, offsetof(Reads, read), 0, nullptr},
    {"thread", T_ULONG, offsetof(Reads, thread), 0, nullptr},
    FLAG(fresh), FLAG(alone), FLAG(busy), FLAG(weakly),
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot SLOTS[] = {
    {Py_tp_doc, const_cast<char *>("What a recording notes.")},
    {Py_tp_new, reinterpret_cast<void *>(reads_new)},
    {Py_tp_methods, METHODS},
    {Py_tp_members, MEMBERS},
    {Py_tp_traverse, reinterpret_cast<void *>(reads_traverse)},
    {Py_tp_clear, reinterpret_cast<void *>(reads_clear)},
    {Py_tp_dealloc, reinterpret_cast<void *>(reads_dealloc)},
    {0, nullptr},
};

PyType_Spec SPEC = {"symshape.tracing.state.compiled_reads.Reads", sizeof(Reads), 0,
                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE, SLOTS};

// -- set up, in three parts: by recorder.py, loads.py and hooks.py
/* Where objects of a class keep what `__slots__` names. */
bool take_slot(PyObject *type, const char *name, Py_ssize_t *to)
{
    Owned found(PyObject_GetAttrString(type, name));
    if (!found)
        return false;
    if (!Py_IS_TYPE(found.object, &PyMemberDescr_Type)) {
        PyErr_Format(PyExc_TypeError, "%R has no slot %s", type, name);
        return false;
    }
    const PyMemberDef *member = reinterpret_cast<PyMemberDescrObject *>(found.object)->d_member;
    if (member->type != T_OBJECT_EX) {
        PyErr_Format(PyExc_TypeError, "the slot %s of %R holds no object", name, type);
        return false;
    }
    *to = member->offset;
    return true;
}

using Check = int (*)(PyObject *);

int any(PyObject *) { return 1; }
int tuple(PyObject *object) { return PyTuple_Check(object); }
int dict(PyObject *object) { return PyDict_Check(object); }
int set(PyObject *object) { return PyAnySet_Check(object); }
int type(PyObject *object) { return PyType_Check(object); }

const struct {
    const char *name;
    PyObject **to;
    Check fits;
} OBJECTS[] = {
    {"missing", &given.missing, any},
    {"cell", &given.cell, type},
    {"namespace_class", &given.namespace_class, type},
    {"versions", &given.versions, any},
    {"symbolic", &given.symbolic, tuple},
    {"followed", &given.followed, tuple},
    {"not_touched", &given.not_touched, tuple},
    {"readers", &given.readers, dict},
    {"load_attr", &given.load_attr, any},
    {"load_global", &given.load_global, any},
    {"of_object", &given.of_object, any},
    {"of_nothing", &given.of_nothing, any},
    {"member", &given.member, type},
    {"member_of", &given.member_of, any},
    {"tables", &given.tables, tuple},
    {"symbolic_tensor", &given.symbolic_tensor, type},
    {"of_every_tensor", &given.of_every_tensor, any},
    {"hooks", &given.hooks, dict},
    {"quiet", &given.quiet, set},
    {"wrapped_names", &given.wrapped_names, set},
    {"wrapped", &given.wrapped, any},
    {"instead", &given.instead, dict},
};

const struct {
    PyObject **type;
    const char *name;
    Py_ssize_t *to;
} OFFSETS[] = {
    {&given.cell, "owner", &given.cell_owner},
    {&given.cell, "key", &given.cell_key},
    {&given.cell, "value", &given.cell_value},
    {&given.cell, "name", &given.cell_name},
    {&given.namespace_class, "name", &given.space_name},
    {&given.namespace_class, "owner", &given.space_owner},
    {&given.namespace_class, "own", &given.space_own},
    {&given.namespace_class, "kind", &given.space_kind},
    {&given.namespace_class, "before", &given.space_before},
    {&given.namespace_class, "_untouched", &given.space_untouched},
    {&given.namespace_class, "open", &given.space_open},
    {&given.namespace_class, "given", &given.space_given},
    {&given.member, "found", &given.member_found},
    {&given.member, "of_module", &given.member_of_module},
    {&given.member, "plain", &given.member_plain},
};

PyObject *setup(PyObject *, PyObject *args, PyObject *kwargs)
{
    Py_ssize_t known = 0;
    for (const auto &each : OBJECTS) {
        PyObject *found = kwargs ? PyDict_GetItemString(kwargs, each.name) : nullptr;
        if (found && !each.fits(found)) {
            PyErr_Format(PyExc_TypeError, "setup takes another kind of %s", each.name);
            return nullptr;
        }
        known += found != nullptr;
    }
    if (PyTuple_GET_SIZE(args) || !kwargs || known != PyDict_GET_SIZE(kwargs)) {
        PyErr_SetString(PyExc_TypeError, "setup takes other names");
        return nullptr;
    }
    for (const auto &each : OBJECTS)
        if (PyObject *found = PyDict_GetItemString(kwargs, each.name))
            Py_XSETREF(*each.to, Py_NewRef(found));
    for (const auto &each : OFFSETS)
        if (*each.type && !take_slot(*each.type, each.name, each.to))
            return nullptr;
    Py_RETURN_NONE;
}

/* Whether everything up to `last` was told: without it nothing here may run. */
bool is_set_up(PyObject *const *last)
{
    for (const auto &each : OBJECTS) {
        if (!*each.to) {
            PyErr_SetString(PyExc_RuntimeError, "compiled_reads is not set up");
            return false;
        }
        if (each.to == last)
            break;
    }
    return true;
}

PyMethodDef FUNCTIONS[] = {
    {"load_attr", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(load_attr)), METH_FASTCALL,
     "The attribute, noted if this thread records."},
    {"load_global", load_global, METH_O, "The global of who calls, noted if this thread records."},
    {"of_object", module_of_object, METH_VARARGS, "An attribute of an object of a class of Python's."},
    {"setup", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(setup)), METH_VARARGS | METH_KEYWORDS,
     "Tells what in Python is meant."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "compiled_reads", "Look-ups of a program that is traced.", -1, FUNCTIONS};

bool make_strings()
{
    const struct {
        PyObject **to;
        const char *text;
    } strings[] = {
        {&s_active, "_active"},       {&s_dict, "__dict__"},         {&s_dot, "."},       {&s_unchanged, "unchanged"},
        {&s_get, "get"},              {&s_touch_made, "touch_made"}, {&s_still, "_still"},
    };
    for (const auto &each : strings)
        if (!(*each.to = PyUnicode_InternFromString(each.text)))
            return false;
    return true;
}

}  // namespace

PyMODINIT_FUNC PyInit_compiled_reads(void)
{
#ifdef Py_GIL_DISABLED
    PyErr_SetString(PyExc_ImportError, "made for a Python with its lock");
    return nullptr;
#else
    PyObject *module = PyModule_Create(&MODULE), *type = PyType_FromSpec(&SPEC);
    reads_type = reinterpret_cast<PyTypeObject *>(type);
    if (!module || !type || !make_strings() || PyModule_AddObjectRef(module, "Reads", type) < 0 ||
        !(own_of_object = PyObject_GetAttrString(module, "of_object")))
        Py_CLEAR(module);
    return module;
#endif
}
