/* Gives compiled functions, methods and properties their docstrings, which mypyc leaves out (it writes signatures only).

   `docstrings_table.h`, which setup.py makes from the sources, has a {module, name, text} a row. Importing this module
   (guards/__init__.py does, where it was built) walks it; `placed` of `rows` texts found what they are about. A text lives
   as long as the process: so do the functions. It depends on CPython's structures alone, on nothing that mypyc writes. */

#include <Python.h>

static const struct { const char *module, *name, *text; } TABLE[] = {
#include "docstrings_table.h"
};

/* Where a compiled object keeps its docstring; NULL for what is not compiled. */
static const char **place(PyObject *object)
{
    if (PyCFunction_Check(object))
        return &((PyCFunctionObject *)object)->m_ml->ml_doc;
    if (Py_IS_TYPE(object, &PyMethodDescr_Type) || Py_IS_TYPE(object, &PyClassMethodDescr_Type))
        return &((PyMethodDescrObject *)object)->d_method->ml_doc;
    if (Py_IS_TYPE(object, &PyGetSetDescr_Type))
        return &((PyGetSetDescrObject *)object)->d_getset->doc;
    return NULL;
}

/* The signature that mypyc wrote (up to its end marker) and then the text. */
static int put(const char **doc, const char *text)
{
    static const char marker[] = "--\n\n";
    const char *end = *doc ? strstr(*doc, marker) : NULL;
    size_t kept = end ? (size_t)(end - *doc) + strlen(marker) : 0;
    char *made = PyMem_Malloc(kept + strlen(text) + 1);
    if (!made) {
        PyErr_NoMemory();
        return -1;
    }
    if (kept)
        memcpy(made, *doc, kept);
    strcpy(made + kept, text);
    *doc = made;
    return 1;
}

/* The object with a name in a module: "" is the module itself, "Class method" a method. */
static PyObject *find(const char *module, const char *name)
{
    PyObject *object = PyImport_ImportModule(module), *text = PyUnicode_FromString(name), *parts = NULL;
    if (text)
        parts = PyUnicode_Split(text, NULL, -1);
    for (Py_ssize_t i = 0; object && parts && i < PyList_GET_SIZE(parts); i++)
        Py_SETREF(object, PyObject_GetAttr(object, PyList_GET_ITEM(parts, i)));
    if (!parts)
        Py_CLEAR(object);
    Py_XDECREF(text);
    Py_XDECREF(parts);
    return object;
}

/* 1 where a docstring was placed, 0 where the object is no longer there or takes none, -1 for an error. */
static int tell(const char *module, const char *name, const char *text)
{
    PyObject *object = find(module, name);
    if (!object) {
        if (!PyErr_ExceptionMatches(PyExc_ImportError) && !PyErr_ExceptionMatches(PyExc_AttributeError))
            return -1;
        PyErr_Clear();
        return 0;
    }
    int done = 0;
    const char **doc = place(object);
    if (doc)
        done = put(doc, text);
    else if (PyType_Check(object) || PyModule_Check(object)) { /* they take it as an attribute */
        PyObject *made = PyUnicode_FromString(text);
        done = made && PyObject_SetAttrString(object, "__doc__", made) == 0 ? 1 : -1;
        Py_XDECREF(made);
    }
    Py_DECREF(object);
    return done;
}

static int fill(PyObject *self)
{
    long placed = 0;
    size_t rows = sizeof(TABLE) / sizeof(TABLE[0]);
    for (size_t row = 0; row < rows; row++) {
        int done = tell(TABLE[row].module, TABLE[row].name, TABLE[row].text);
        if (done < 0)
            return -1;
        placed += done;
    }
    return PyModule_AddIntConstant(self, "rows", (long)rows) || PyModule_AddIntConstant(self, "placed", placed) ? -1 : 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, fill}, {0, NULL}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "docstrings", "The docstrings of what mypyc compiled.", 0, NULL, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit_docstrings(void)
{
    return PyModuleDef_Init(&definition);
}
