/* `step_writer.py` in C: the same methods, and pages that are equal byte for byte. Optional; for CPython with the GIL.
 *
 * A block is prepared aside, with its checksum, and copied into the page at once, as in Python. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <math.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the page is little-endian; elsewhere the writer in Python is used"
#endif

/* As in beacon_page.py and step_ring.py. */
enum { STATE_AT = 4096, RING_AT = 32768, ENTRIES = 1024, ENTRY_BYTES = 96, SECTIONS = 8 };
enum { PAGE_BYTES = RING_AT + ENTRIES * ENTRY_BYTES };
enum { STEP = 1, BETWEEN = 2 };

struct __attribute__((packed)) state {
    uint64_t sequence;
    int64_t step;
    double since, at;
    uint64_t completed;
    uint32_t phase, section;
    uint64_t sequence_again;
    uint32_t crc;
};

struct __attribute__((packed)) entry {
    uint64_t ordinal;
    int64_t step;
    double started_at, seconds;
    uint32_t flags;
    float sections[SECTIONS - 1];
    double loss, grad_norm;
    uint64_t tokens;
    uint32_t zero, crc;
};

_Static_assert(sizeof(struct state) == 60 && sizeof(struct entry) == ENTRY_BYTES, "the page's layout");

typedef struct {
    PyObject_HEAD
    Py_buffer page; /* .buf is NULL once closed */
    PyObject *wall, *monotonic, *marker; /* NULL: the system's clocks; no marker */
    uint64_t sequence, completed;
    int64_t step;
    uint32_t phase, section;
    double since, began, entered;
    double seconds[SECTIONS];
    unsigned int touched;
    int current, *outer;
    Py_ssize_t depth, room;
} Writer;

typedef struct {
    PyObject_HEAD
    Writer *writer;
    int section;
} Section;

static PyTypeObject *section_type; /* one interpreter: the module has no state of its own */
static PyObject *struct_error;
static uint32_t crc_table[8][256];

static void fill_crc_table(void)
{
    for (uint32_t n = 0; n < 256; n++) {
        uint32_t c = n;
        for (int bit = 0; bit < 8; bit++)
            c = c & 1 ? c >> 1 ^ 0xEDB88320u : c >> 1;
        crc_table[0][n] = c;
    }
    for (int t = 1; t < 8; t++)
        for (int n = 0; n < 256; n++)
            crc_table[t][n] = crc_table[t - 1][n] >> 8 ^ crc_table[0][crc_table[t - 1][n] & 255];
}

static uint32_t crc32(const void *block, size_t length)
{
    const unsigned char *p = block;
    uint32_t c = ~0u;
    for (; length >= 8; length -= 8, p += 8) {
        uint32_t low, high;
        memcpy(&low, p, 4);
        memcpy(&high, p + 4, 4);
        low ^= c;
        c = crc_table[7][low & 255] ^ crc_table[6][low >> 8 & 255] ^ crc_table[5][low >> 16 & 255] ^
            crc_table[4][low >> 24] ^ crc_table[3][high & 255] ^ crc_table[2][high >> 8 & 255] ^
            crc_table[1][high >> 16 & 255] ^ crc_table[0][high >> 24];
    }
    for (; length; length--, p++)
        c = c >> 8 ^ crc_table[0][(c ^ *p) & 255];
    return ~c;
}

/* Seconds of a clock, as `time.time` rounds them; -1 with an exception set if a clock given to the writer failed. */
static int look(PyObject *clock, clockid_t id, double *seconds)
{
    if (clock == NULL) {
        struct timespec now;
        clock_gettime(id, &now);
        *seconds = (double)((int64_t)now.tv_sec * 1000000000 + now.tv_nsec) / 1e9;
        return 0;
    }
    PyObject *told = PyObject_CallNoArgs(clock);
    if (told == NULL)
        return -1;
    *seconds = PyFloat_AsDouble(told);
    Py_DECREF(told);
    return *seconds == -1.0 && PyErr_Occurred() ? -1 : 0;
}

/* A whole number as `struct` takes it, with its error; signed 64 bits, or unsigned 32. */
static int take_number(PyObject *given, int64_t least, int64_t most, int64_t *number)
{
    PyObject *whole = PyNumber_Index(given);
    if (whole != NULL) {
        int overflow;
        long long value = PyLong_AsLongLongAndOverflow(whole, &overflow);
        Py_DECREF(whole);
        if (!overflow && value >= least && value <= most) {
            *number = value;
            return 0;
        }
    }
    PyErr_Clear();
    PyErr_SetString(struct_error, "required argument is not an integer of its field");
    return -1;
}

static int is_open(Writer *self)
{
    if (self->page.buf == NULL)
        PyErr_SetString(PyExc_TypeError, "the page is closed");
    return self->page.buf != NULL;
}

static PyObject *write_state(Writer *self, double at)
{
    if (!is_open(self))
        return NULL;
    self->sequence++;
    struct state block = {self->sequence, self->step,  self->since,   at,  self->completed,
                          self->phase,    self->section, self->sequence, 0};
    block.crc = crc32(&block, offsetof(struct state, crc));
    memcpy((char *)self->page.buf + STATE_AT, &block, sizeof block);
    Py_RETURN_NONE;
}

static int write_entry(Writer *self, struct entry *entry)
{
    if (!is_open(self))
        return -1;
    entry->crc = crc32(entry, offsetof(struct entry, crc));
    memcpy((char *)self->page.buf + RING_AT + entry->ordinal % ENTRIES * ENTRY_BYTES, entry, sizeof *entry);
    return 0;
}

static int set_sections(struct entry *entry, const double *seconds)
{
    for (int at = 1; at < SECTIONS; at++) {
        float narrow = (float)seconds[at];
        if (isinf(narrow) && !isinf(seconds[at])) {
            PyErr_SetString(PyExc_OverflowError, "float too large to pack with f format");
            return -1;
        }
        entry->sections[at - 1] = narrow;
    }
    return 0;
}

static PyObject *begin_step(Writer *self, PyObject *given)
{
    int64_t step;
    double now, began;
    if (take_number(given, INT64_MIN, INT64_MAX, &step) < 0 || look(self->wall, CLOCK_REALTIME, &now) < 0 ||
        look(self->monotonic, CLOCK_MONOTONIC, &began) < 0)
        return NULL;
    self->step = step;
    self->phase = STEP;
    self->section = 0;
    self->since = now;
    self->began = began;
    return write_state(self, now);
}

static PyObject *publish(Writer *self, uint32_t section)
{
    double now;
    if (look(self->wall, CLOCK_REALTIME, &now) < 0)
        return NULL;
    self->section = section;
    return write_state(self, now);
}

static PyObject *section(Writer *self, PyObject *given)
{
    int64_t number;
    return take_number(given, 0, UINT32_MAX, &number) < 0 ? NULL : publish(self, (uint32_t)number);
}

static int take_section(PyObject *given)
{
    int64_t number;
    if (take_number(given, 0, UINT32_MAX, &number) < 0)
        return -1;
    if (number < SECTIONS)
        return (int)number;
    PyErr_SetString(PyExc_IndexError, "no such section");
    return -1;
}

static int mark(Writer *self, int closing, double now)
{
    if (self->marker == NULL)
        return 0;
    PyObject *marker = self->marker;
    Py_INCREF(marker); /* it may take itself away */
    PyObject *done = PyObject_CallFunction(marker, "id", closing, now);
    Py_DECREF(marker);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static PyObject *enter_section(Writer *self, int section)
{
    double now;
    if (look(self->monotonic, CLOCK_MONOTONIC, &now) < 0)
        return NULL;
    if (self->depth == self->room) {
        Py_ssize_t room = self->room * 2 + 8;
        int *outer = PyMem_Realloc(self->outer, (size_t)room * sizeof *outer);
        if (outer == NULL)
            return PyErr_NoMemory();
        self->outer = outer;
        self->room = room;
    }
    int current = self->current;
    if (current)
        self->seconds[current] += now - self->entered;
    self->outer[self->depth++] = current;
    self->current = section;
    self->entered = now;
    self->touched |= 1u << section >> 1;
    return mark(self, current, now) < 0 ? NULL : publish(self, (uint32_t)section);
}

static PyObject *leave_section(Writer *self, int section)
{
    double now;
    if (look(self->monotonic, CLOCK_MONOTONIC, &now) < 0)
        return NULL;
    int current = self->current, inner = current;
    self->seconds[current] += now - self->entered;
    int outer = self->depth ? self->outer[--self->depth] : 0;
    while (inner != section && self->depth) {
        inner = outer;
        outer = self->outer[--self->depth];
    }
    self->current = outer;
    self->entered = now;
    return mark(self, current, now) < 0 ? NULL : publish(self, (uint32_t)outer);
}

static PyObject *enter(Writer *self, PyObject *given)
{
    int section = take_section(given);
    return section < 0 ? NULL : enter_section(self, section);
}

static PyObject *leave(Writer *self, PyObject *given)
{
    int section = take_section(given);
    return section < 0 ? NULL : leave_section(self, section);
}

static PyObject *reset(Writer *self, PyObject *Py_UNUSED(none))
{
    self->touched = 0;
    self->current = 0;
    self->depth = 0;
    memset(self->seconds, 0, sizeof self->seconds);
    Py_RETURN_NONE;
}

/* The head of the running step's entry. */
static int begin_entry(Writer *self, struct entry *entry)
{
    double now;
    if (look(self->monotonic, CLOCK_MONOTONIC, &now) < 0)
        return -1;
    *entry = (struct entry){.ordinal = self->completed, .step = self->step, .started_at = self->since, .seconds = now - self->began};
    return 0;
}

static PyObject *go_between(Writer *self, double seconds)
{
    self->completed++;
    self->phase = BETWEEN;
    self->section = 0;
    self->since += seconds;
    return write_state(self, self->since);
}

static PyObject *end_step(Writer *self, PyObject *Py_UNUSED(none))
{
    struct entry entry;
    if (begin_entry(self, &entry) < 0 || write_entry(self, &entry) < 0)
        return NULL;
    return go_between(self, entry.seconds);
}

static PyObject *end_told_step(Writer *self, PyObject *args)
{
    struct entry entry;
    double loss, grad_norm;
    unsigned long long tokens;
    if (!PyArg_ParseTuple(args, "ddK", &loss, &grad_norm, &tokens) || begin_entry(self, &entry) < 0)
        return NULL;
    entry.flags = self->touched;
    entry.loss = loss;
    entry.grad_norm = grad_norm;
    entry.tokens = tokens;
    if (set_sections(&entry, self->seconds) < 0 || write_entry(self, &entry) < 0)
        return NULL;
    PyObject *done = go_between(self, entry.seconds);
    if (done != NULL)
        Py_DECREF(reset(self, NULL));
    return done;
}

/* Fill an entry's values from `EntryMeasurements`. */
static int take_measured(struct entry *entry, PyObject *measured)
{
    PyObject *told;
    double loss, grad_norm, seconds[SECTIONS];
    unsigned int flags;
    unsigned long long tokens;
    if (!PyTuple_Check(measured)) {
        PyErr_SetString(PyExc_TypeError, "measurements must be a tuple");
        return -1;
    }
    if (!PyArg_ParseTuple(measured, "IOddK", &flags, &told, &loss, &grad_norm, &tokens))
        return -1;
    if (PySequence_Size(told) != SECTIONS) {
        PyErr_SetString(PyExc_ValueError, "seconds must have one place per section");
        return -1;
    }
    for (int at = 0; at < SECTIONS; at++) {
        PyObject *value = PySequence_GetItem(told, at);
        if (value == NULL)
            return -1;
        seconds[at] = PyFloat_AsDouble(value);
        Py_DECREF(value);
        if (seconds[at] == -1.0 && PyErr_Occurred())
            return -1;
    }
    entry->flags = flags;
    entry->loss = loss;
    entry->grad_norm = grad_norm;
    entry->tokens = tokens;
    return set_sections(entry, seconds);
}

static PyObject *end_measured_step(Writer *self, PyObject *measured)
{
    struct entry entry;
    if (begin_entry(self, &entry) < 0 || take_measured(&entry, measured) < 0 || write_entry(self, &entry) < 0)
        return NULL;
    PyObject *done = go_between(self, entry.seconds);
    if (done == NULL)
        return NULL;
    Py_DECREF(done);
    return Py_BuildValue("KLdd", (unsigned long long)entry.ordinal, (long long)entry.step, entry.started_at, entry.seconds);
}

static PyObject *complete(Writer *self, PyObject *args)
{
    unsigned long long ordinal;
    long long step;
    double started_at, seconds;
    PyObject *measured;
    if (!PyArg_ParseTuple(args, "(KLdd)O", &ordinal, &step, &started_at, &seconds, &measured))
        return NULL;
    if (ordinal + ENTRIES > self->completed) {
        struct entry entry = {.ordinal = ordinal, .step = step, .started_at = started_at, .seconds = seconds};
        if (take_measured(&entry, measured) < 0 || write_entry(self, &entry) < 0)
            return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *phase(Writer *self, PyObject *given)
{
    int64_t number;
    double now;
    if (take_number(given, 0, UINT32_MAX, &number) < 0 || look(self->wall, CLOCK_REALTIME, &now) < 0)
        return NULL;
    if ((uint32_t)number != self->phase || self->since == 0.0) {
        self->phase = (uint32_t)number;
        self->since = now;
        self->section = 0;
    }
    return write_state(self, now);
}

static PyObject *close_page(Writer *self, PyObject *Py_UNUSED(none))
{
    if (self->page.buf != NULL) {
        PyBuffer_Release(&self->page);
        self->page.buf = NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *timed_section(Writer *self, PyObject *given)
{
    int number = take_section(given);
    if (number < 0)
        return NULL;
    Section *made = PyObject_GC_New(Section, section_type);
    if (made == NULL)
        return NULL;
    Py_INCREF((PyObject *)self);
    made->writer = self;
    made->section = number;
    PyObject_GC_Track(made);
    return (PyObject *)made;
}

static PyObject *section_enter(Section *self, PyObject *Py_UNUSED(none))
{
    return enter_section(self->writer, self->section);
}

static PyObject *section_exit(Section *self, PyObject *const *Py_UNUSED(args), Py_ssize_t Py_UNUSED(count))
{
    return leave_section(self->writer, self->section);
}

/* No `tp_clear`: the writer's breaks every cycle, as only its marker can be part of one. */
static int section_traverse(Section *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT((PyObject *)self->writer);
    return 0;
}

static void section_dealloc(Section *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack(self);
    Py_DECREF((PyObject *)self->writer);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyObject *get_marker(Writer *self, void *Py_UNUSED(closure))
{
    PyObject *marker = self->marker != NULL ? self->marker : Py_None;
    Py_INCREF(marker);
    return marker;
}

static int set_marker(Writer *self, PyObject *marker, void *Py_UNUSED(closure))
{
    PyObject *old = self->marker;
    self->marker = marker == Py_None ? NULL : marker;
    Py_XINCREF(self->marker);
    Py_XDECREF(old);
    return 0;
}

static int take_clock(PyObject *clock, const char *name, PyObject **kept)
{
    Py_XDECREF(*kept);
    *kept = clock == Py_None ? NULL : PyObject_GetAttrString(clock, name);
    return clock != Py_None && *kept == NULL ? -1 : 0;
}

static int init(Writer *self, PyObject *args, PyObject *named)
{
    static char *names[] = {"page", "clock", NULL};
    PyObject *page, *clock = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, named, "O|O", names, &page, &clock) || take_clock(clock, "wall", &self->wall) < 0 ||
        take_clock(clock, "monotonic", &self->monotonic) < 0)
        return -1;
    Py_DECREF(close_page(self, NULL));
    if (PyObject_GetBuffer(page, &self->page, PyBUF_WRITABLE) < 0)
        return -1;
    if (self->page.len != PAGE_BYTES) {
        Py_DECREF(close_page(self, NULL));
        PyErr_SetString(PyExc_ValueError, "a page has another size");
        return -1;
    }
    self->step = -1;
    return 0;
}

static int traverse(Writer *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->wall);
    Py_VISIT(self->monotonic);
    Py_VISIT(self->marker);
    Py_VISIT(self->page.obj);
    return 0;
}

static int clear(Writer *self)
{
    Py_CLEAR(self->marker);
    return 0;
}

static void dealloc(Writer *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack(self);
    Py_DECREF(close_page(self, NULL));
    Py_XDECREF(self->wall);
    Py_XDECREF(self->monotonic);
    Py_XDECREF(self->marker);
    PyMem_Free(self->outer);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"timed_section", (PyCFunction)timed_section, METH_O, NULL},
    {"begin_step", (PyCFunction)begin_step, METH_O, NULL},
    {"section", (PyCFunction)section, METH_O, NULL},
    {"enter", (PyCFunction)enter, METH_O, NULL},
    {"leave", (PyCFunction)leave, METH_O, NULL},
    {"reset", (PyCFunction)reset, METH_NOARGS, NULL},
    {"end_step", (PyCFunction)end_step, METH_NOARGS, NULL},
    {"end_told_step", (PyCFunction)end_told_step, METH_VARARGS, NULL},
    {"end_measured_step", (PyCFunction)end_measured_step, METH_O, NULL},
    {"complete", (PyCFunction)complete, METH_VARARGS, NULL},
    {"phase", (PyCFunction)phase, METH_O, NULL},
    {"close", (PyCFunction)close_page, METH_NOARGS, NULL},
    {NULL},
};

static PyMemberDef members[] = {
    {"touched", T_UINT, offsetof(Writer, touched), 0, NULL},
    {"current", T_INT, offsetof(Writer, current), READONLY, NULL},
    {NULL},
};

static PyGetSetDef properties[] = {
    {"marker", (getter)get_marker, (setter)set_marker, NULL, NULL},
    {NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_methods, methods}, {Py_tp_members, members},   {Py_tp_getset, properties}, {Py_tp_new, PyType_GenericNew},
    {Py_tp_init, init},       {Py_tp_traverse, traverse}, {Py_tp_clear, clear},       {Py_tp_dealloc, dealloc},
    {0, NULL},
};

static PyMethodDef section_methods[] = {
    {"__enter__", (PyCFunction)section_enter, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)(void (*)(void))section_exit, METH_FASTCALL, NULL},
    {NULL},
};

static PyType_Slot section_slots[] = {
    {Py_tp_methods, section_methods},
    {Py_tp_traverse, section_traverse},
    {Py_tp_dealloc, section_dealloc},
    {0, NULL},
};

static PyType_Spec writer_spec = {
    "healthd.trainer.beacons._step_writer.StepWriter", sizeof(Writer), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots};
static PyType_Spec section_spec = {"healthd.trainer.beacons._step_writer.TimedSection", sizeof(Section), 0,
                                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, section_slots};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_step_writer", NULL, -1, NULL};

PyMODINIT_FUNC PyInit__step_writer(void)
{
    fill_crc_table();
    PyObject *module = PyModule_Create(&definition), *structs = PyImport_ImportModule("struct");
    PyObject *writer = PyType_FromSpec(&writer_spec);
    section_type = (PyTypeObject *)PyType_FromSpec(&section_spec);
    struct_error = structs != NULL ? PyObject_GetAttrString(structs, "error") : NULL;
    Py_XDECREF(structs);
    if (module == NULL || writer == NULL || section_type == NULL || struct_error == NULL ||
        PyModule_AddObject(module, "StepWriter", writer) < 0)
        return NULL;
    return module;
}
