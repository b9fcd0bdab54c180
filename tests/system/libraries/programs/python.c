/* SPDX-License-Identifier: MIT */
/* An interpreter of Python in each rank: modules with state, extension modules, a callback that meets others. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "stress.h"

static PyObject* meet_others(PyObject* self, PyObject* arguments) {
  (void)self;
  int round = 0;
  if (!PyArg_ParseTuple(arguments, "i", &round)) return NULL;
  meet(round);
  return PyLong_FromLong(round + rank);
}

static PyMethodDef methods[] = {{"meet", meet_others, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "world", NULL, -1, methods, NULL, NULL, NULL, NULL};
static PyObject* make_module(void) { return PyModule_Create(&module); }

static const char work[] =
    "import world, json, random, decimal, sqlite3, threading, hashlib, ctypes\n"
    "random.seed(rank); first = [random.random() for _ in range(5)]\n"
    "decimal.getcontext().prec = 20 + rank\n"
    "base = sqlite3.connect(':memory:')\n"
    "base.create_function('meet', 1, world.meet)\n"
    "base.execute('create table t(a)')\n"
    "base.executemany('insert into t values (?)', [(i,) for i in range(10)])\n"
    "for round in range(20):\n"
    "    assert world.meet(round) == round + rank\n"
    "    assert json.loads(json.dumps({'r': [rank] * round}))['r'] == [rank] * round\n"
    "    assert len(str(decimal.Decimal(1) / 3)) == 22 + rank\n"
    "    assert base.execute('select sum(meet(a)) from t').fetchone()[0] == 45 + 10 * rank\n"
    "    world.meet(1)\n"
    "    try:\n"
    "        raise KeyError(rank)\n"
    "    except KeyError as error:\n"
    "        world.meet(2)\n"
    "        assert error.args == (rank,)\n"
    "seen = []\n"
    "workers = [threading.Thread(target=lambda i=i: seen.append(hashlib.sha256(b'%d' % i).hexdigest()))\n"
    "           for i in range(4)]\n"
    "[worker.start() for worker in workers]; [worker.join() for worker in workers]\n"
    "assert sorted(seen) == sorted(hashlib.sha256(b'%d' % i).hexdigest() for i in range(4))\n"
    "random.seed(rank); assert first == [random.random() for _ in range(5)]\n"
    "assert ctypes.CDLL(None).abs(-rank) == rank\n";

int main(int argc, char** argv) {
  begin(&argc, &argv);
  PyImport_AppendInittab("world", make_module);
  Py_InitializeEx(0);
  PyObject* names = PyModule_GetDict(PyImport_AddModule("__main__"));
  PyObject* number = PyLong_FromLong(rank);
  PyDict_SetItemString(names, "rank", number);
  Py_DECREF(number);
  check(PyRun_SimpleString(work) == 0, "the script");
  check(Py_FinalizeEx() == 0, "the end of Python");
  return end();
}
