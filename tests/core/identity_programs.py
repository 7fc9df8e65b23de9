"""Programs for the tests of code identity: pairs of versions, and programs that have no identity, each by its point."""

from __future__ import annotations

# --- what counts ---

WRAPPED = "import functools\ndef d(f):\n @functools.wraps(f)\n def w(*a): return f(*a)\n return w\n"
HELPED = "from .other import helper\ndef step(x): return helper(x)\n### other\n"

CHANGED = {
    "a constant": ("def step(): return 1", "def step(): return 2"),
    "a constant of another type": ("def step(): return 1", "def step(): return 1.0"),
    "the sign of zero": ("def step(): return 0.0", "def step(): return -0.0"),
    "a constant that is not finite": ("def step(): return 1e999", "def step(): return -1e999"),
    "a constant within a tuple": ("def step(): return (1, (2, 'a'))", "def step(): return (1, (2, 'b'))"),
    "a set of constants": ("def step(x): return x in {1, 2}", "def step(x): return x in {1, 3}"),
    "text that is not valid": ("def step(): return '\\ud800'", "def step(): return '\\ud801'"),
    "an operator": ("def step(x): return x + 1", "def step(x): return x - 1"),
    "a name": ("def step(x): return x.a", "def step(x): return x.b"),
    "the name of a parameter": ("def step(x): return 1", "def step(y): return 1"),
    "how a parameter is given": ("def step(x): return x", "def step(*, x): return x"),
    "async": ("def step(): return 1", "async def step(): return 1"),
    "what is handled": (
        "def step(x):\n try:\n  a(x)\n  b(x)\n except E: pass",
        "def step(x):\n a(x)\n try:\n  b(x)\n except E: pass",
    ),
    "a default": ("def step(x=1): return x", "def step(x=2): return x"),
    "a named default": ("def step(*, x=1): return x", "def step(*, x=2): return x"),
    "a lambda within": ("def step(): return lambda: 1", "def step(): return lambda: 2"),
    "a function within": (
        "def step():\n def inner(): return 1\n return inner()",
        "def step():\n def inner(): return 2\n return inner()",
    ),
    "a class within": (
        "def step():\n class A:\n  x = 1\n return A.x",
        "def step():\n class A:\n  x = 2\n return A.x",
    ),
    "a comprehension": ("def step(x): return [i for i in x]", "def step(x): return [i + 1 for i in x]"),
    "a constant of the module": ("A = 1\ndef step(): return A", "A = 2\ndef step(): return A"),
    "a list of the module": ("A = [1, {'a': 2}]\ndef step(): return A", "A = [1, {'a': 3}]\ndef step(): return A"),
    "the order of a dict": ("A = {1: 2, 3: 4}\ndef step(): return A", "A = {3: 4, 1: 2}\ndef step(): return A"),
    "a set of the module": ("A = {1, 'a'}\ndef step(): return A", "A = {1, 'b'}\ndef step(): return A"),
    "what a function within reads": (
        "A = 1\ndef step(): return [(lambda: A)() for _ in '1']",
        "A = 2\ndef step(): return [(lambda: A)() for _ in '1']",
    ),
    "a name that is not there yet": ("def step(): return A", "def step(): return A\nA = 1"),
    "a builtin that is covered": ("def step(x): return len(x)", "def step(x): return len(x)\ndef len(x): return 0"),
    "another module's function": (
        HELPED + "def helper(x): return x",
        HELPED + "def helper(x): return -x",
    ),
    "what another module's function reaches": (
        HELPED + "from .third import A\ndef helper(x): return A\n### third\nA = 1",
        HELPED + "from .third import A\ndef helper(x): return A\n### third\nA = 2",
    ),
    "a function by its module": (
        "from . import other\ndef step(): return other.f()\n### other\ndef f(): return 1",
        "from . import other\ndef step(): return other.f()\n### other\ndef f(): return 2",
    ),
    "a module as a value": (
        "from . import other\ndef step(n): return getattr(other, n)\n### other\nA = 1",
        "from . import other\ndef step(n): return getattr(other, n)\n### other\nA = 2",
    ),
    "a module that looks into the future": (
        "from . import other\ndef step(n): return getattr(other, n)\n"
        "### other\nfrom __future__ import annotations\nA = 1",
        "from . import other\ndef step(n): return getattr(other, n)\n"
        "### other\nfrom __future__ import annotations\nA = 2",
    ),
    "an import within": (
        "from . import other\ndef step():\n from .other import f\n return f()\n### other\ndef f(): return 1",
        "from . import other\ndef step():\n from .other import f\n return f()\n### other\ndef f(): return 2",
    ),
    "functions that call each other": (
        "def step(x): return odd(x)\ndef odd(x): return step(x - 1)",
        "def step(x): return odd(x)\ndef odd(x): return step(x - 2)",
    ),
    "an attribute of a function": (
        "def step(): return f.limit\ndef f(): pass\nf.limit = 1",
        "def step(): return f.limit\ndef f(): pass\nf.limit = 2",
    ),
    "what a decorator wraps": (
        WRAPPED + "@d\ndef step(): return 1",
        WRAPPED + "@d\ndef step(): return 2",
    ),
    "a decorator": (
        WRAPPED + "@d\ndef step(): return 1",
        WRAPPED.replace("f(*a)\n", "[f(*a)]\n") + "@d\ndef step(): return 1",
    ),
    "what a library's decorator wraps": (
        "import contextlib\n@contextlib.contextmanager\ndef c(): yield 1\ndef step():\n with c() as x: return x",
        "import contextlib\n@contextlib.contextmanager\ndef c(): yield 2\ndef step():\n with c() as x: return x",
    ),
    "what is cached": (
        "import functools\n@functools.lru_cache\ndef f(): return 1\ndef step(): return f()",
        "import functools\n@functools.lru_cache\ndef f(): return 2\ndef step(): return f()",
    ),
    "a closure": (
        "def make(n):\n def f(): return n\n return f\nstep = make(1)",
        "def make(n):\n def f(): return n\n return f\nstep = make(2)",
    ),
    "a function in a closure": (
        "def make(n):\n def f(): return n()\n return f\nstep = make(lambda: 1)",
        "def make(n):\n def f(): return n()\n return f\nstep = make(lambda: 2)",
    ),
    "an argument of a partial": (
        "from functools import partial\ndef f(x, y=0): return x\nstep = partial(f, 1, y=2)",
        "from functools import partial\ndef f(x, y=0): return x\nstep = partial(f, 1, y=3)",
    ),
    "the function of a partial": (
        "from functools import partial\ndef f(x): return x\nstep = partial(f, 1)",
        "from functools import partial\ndef f(x): return -x\nstep = partial(f, 1)",
    ),
    "which library function": (
        "import math\ndef step(x): f = math.floor; return f(x)",
        "import math\ndef step(x): f = math.ceil; return f(x)",
    ),
    "a library constant under one name": (
        "from math import pi as a\ndef step(): return a",
        "from math import e as a\ndef step(): return a",
    ),
    "a library function under one name": (
        "from textwrap import dedent as f\ndef step(x): return f(x)",
        "from textwrap import indent as f\ndef step(x): return f(x)",
    ),
    "a pattern": (
        "import re\nP = re.compile('a')\ndef step(): return P",
        "import re\nP = re.compile('b')\ndef step(): return P",
    ),
    "a date": (
        "from datetime import date\nD = date(2026, 1, 1)\ndef step(): return D",
        "from datetime import date\nD = date(2026, 1, 2)\ndef step(): return D",
    ),
    "a method of a pattern": (
        "import re\nM = re.compile('a').match\ndef step(x): return M(x)",
        "import re\nM = re.compile('b').match\ndef step(x): return M(x)",
    ),
    "what is got": (
        "from operator import *\nG = itemgetter(0)\ndef step(x): return G(x)",
        "from operator import *\nG = itemgetter(1)\ndef step(x): return G(x)",
    ),
    "what is called": (
        "from operator import *\nG = methodcaller('a', 1, b=2)\ndef step(x): return G(x)",
        "from operator import *\nG = methodcaller('a', 1, b=3)\ndef step(x): return G(x)",
    ),
    "what a missing key gives": (
        "from collections import *\nD = defaultdict(int, a=1)\ndef step(x): return D[x]",
        "from collections import *\nD = defaultdict(list, a=1)\ndef step(x): return D[x]",
    ),
    "what was counted": (
        "from collections import *\nD = Counter(a=1)\ndef step(x): return D[x]",
        "from collections import *\nD = Counter(a=2)\ndef step(x): return D[x]",
    ),
    "an alias that has a name": (
        "from typing_extensions import TypeAliasType\nA = TypeAliasType('A', list[int])\ndef step(): return A",
        "from typing_extensions import TypeAliasType\nA = TypeAliasType('A', list[str])\ndef step(): return A",
    ),
    "the limits of a type variable": (
        "from typing import *\nT = TypeVar('T', int, str)\ndef step(): return T",
        "from typing import *\nT = TypeVar('T', int, bytes)\ndef step(): return T",
    ),
    "an alias of a type": (
        "from pydantic import TypeAdapter\nA = list[int]\ndef step(): return TypeAdapter(A)",
        "from pydantic import TypeAdapter\nA = list[str]\ndef step(): return TypeAdapter(A)",
    ),
}
"""What two versions of a program differ in, and the two."""

CLASS = "class C:\n {}\ndef step(): return C()"
GENERIC = "from typing import *\nT = TypeVar('T')\nclass B(Generic[T]): pass\n"
MODEL = "from pydantic import *\nfrom typing import *\nclass C(BaseModel):\n {}\ndef step(): return C()"
DATACLASS = "from dataclasses import *\n@dataclass{}\nclass C:\n {}\ndef step(): return C()"
ENUM = "from enum import *\nclass C(Enum):\n {}\ndef step(): return C.A"
STRUCT = "from msgspec import *\nclass C(Struct{}):\n a: int = {}\ndef step(): return C()"
TUPLE = "from typing import NamedTuple\nclass C(NamedTuple):\n x: int = 1\n {}\ndef step(): return C()"

CHANGED_CLASSES = {
    "a method": (CLASS.format("def m(self): return 1"), CLASS.format("def m(self): return 2")),
    "a static method": (
        CLASS.format("@staticmethod\n def m(): return 1"),
        CLASS.format("@staticmethod\n def m(): return 2"),
    ),
    "a class method": (
        CLASS.format("@classmethod\n def m(cls): return 1"),
        CLASS.format("@classmethod\n def m(cls): return 2"),
    ),
    "a property": (
        CLASS.format("@property\n def m(self): return 1"),
        CLASS.format("@property\n def m(self): return 2"),
    ),
    "which sort of method": (
        CLASS.format("@staticmethod\n def m(a): return 1"),
        CLASS.format("@classmethod\n def m(a): return 1"),
    ),
    "a class attribute": (CLASS.format("a = 1"), CLASS.format("a = 2")),
    "a slot": (CLASS.format("__slots__ = ('a',)"), CLASS.format("__slots__ = ('b',)")),
    "what a method reaches": (
        "A = 1\n" + CLASS.format("def m(self): return A"),
        "A = 2\n" + CLASS.format("def m(self): return A"),
    ),
    "a base": (
        "class B:\n def m(self): return 1\nclass C(B): pass\ndef step(): return C()",
        "class B:\n def m(self): return 2\nclass C(B): pass\ndef step(): return C()",
    ),
    "the order of bases": (
        "class A: pass\nclass B: pass\nclass C(A, B): pass\ndef step(): return C()",
        "class A: pass\nclass B: pass\nclass C(B, A): pass\ndef step(): return C()",
    ),
    "what a pattern matches": (CLASS.format("__match_args__ = ('a',)"), CLASS.format("__match_args__ = ('b',)")),
    "what a base is of": (
        GENERIC + "class C(B[int]): pass\ndef step(): return C",
        GENERIC + "class C(B[str]): pass\ndef step(): return C",
    ),
    "a metaclass": (
        "class M(type):\n def f(cls): return 1\nclass C(metaclass=M): pass\ndef step(): return C.f()",
        "class M(type):\n def f(cls): return 2\nclass C(metaclass=M): pass\ndef step(): return C.f()",
    ),
    "a class of an argument": (
        "class C:\n def m(self): return 1\ndef step(c: C): return c.m()",
        "class C:\n def m(self): return 2\ndef step(c: C): return c.m()",
    ),
    "a class of an argument as text": (
        "def step(c: 'list[C] | None'): return c.m()\nclass C:\n def m(self): return 1",
        "def step(c: 'list[C] | None'): return c.m()\nclass C:\n def m(self): return 2",
    ),
    "a class of a field of an argument": (
        "class D:\n def m(self): return 1\nclass C:\n d: dict[str, D]\ndef step(c: C): return c.d[''].m()",
        "class D:\n def m(self): return 2\nclass C:\n d: dict[str, D]\ndef step(c: C): return c.d[''].m()",
    ),
    "a field's type of a dataclass": (DATACLASS.format("", "a: int = 1"), DATACLASS.format("", "a: str = 1")),
    "a field's default": (DATACLASS.format("", "a: int = 1"), DATACLASS.format("", "a: int = 2")),
    "a field's factory": (
        DATACLASS.format("", "a: list = field(default_factory=lambda: [1])"),
        DATACLASS.format("", "a: list = field(default_factory=lambda: [2])"),
    ),
    "what a dataclass compares": (
        DATACLASS.format("", "a: int = field(default=1, compare=True)"),
        DATACLASS.format("", "a: int = field(default=1, compare=False)"),
    ),
    "a parameter of a dataclass": (DATACLASS.format("", "a: int = 1"), DATACLASS.format("(frozen=True)", "a: int = 1")),
    "a method of a dataclass": (
        DATACLASS.format("", "a: int = 1\n def __eq__(self, o): return True"),
        DATACLASS.format("", "a: int = 1\n def __eq__(self, o): return False"),
    ),
    "a value of an enumeration": (ENUM.format("A = 1"), ENUM.format("A = 2")),
    "a method of an enumeration": (
        ENUM.format("A = 1\n def __str__(self): return '1'"),
        ENUM.format("A = 1\n def __str__(self): return '2'"),
    ),
    "the order of an enumeration": (ENUM.format("A = 1; B = 2"), ENUM.format("B = 2; A = 1")),
    "a default of a named tuple": (TUPLE.format("y: int = 1"), TUPLE.format("y: int = 2")),
    "a method of a named tuple": (
        TUPLE.format("def m(self): return 1"),
        TUPLE.format("def m(self): return 2"),
    ),
    "a field's type of a model": (MODEL.format("a: int = 1"), MODEL.format("a: float = 1")),
    "a field's default of a model": (MODEL.format("a: int = 1"), MODEL.format("a: int = 2")),
    "a constraint": (MODEL.format("a: int = Field(1, gt=0)"), MODEL.format("a: int = Field(1, gt=-1)")),
    "a constraint of pydantic's own": (
        MODEL.format("a: str = Field('1', pattern='1')"),
        MODEL.format("a: str = Field('1', pattern='.')"),
    ),
    "an alias": (MODEL.format("a: int = Field(1, alias='b')"), MODEL.format("a: int = Field(1, alias='c')")),
    "the config of a model": (
        MODEL.format("model_config = ConfigDict(extra='allow')"),
        MODEL.format("model_config = ConfigDict(extra='forbid')"),
    ),
    "a validator": (
        MODEL.format("a: int = 1\n @field_validator('a')\n def f(cls, v): return v"),
        MODEL.format("a: int = 1\n @field_validator('a')\n def f(cls, v): return -v"),
    ),
    "what a validator is for": (
        MODEL.format("a: int = 1; b: int = 1\n @field_validator('a')\n def f(cls, v): return -v"),
        MODEL.format("a: int = 1; b: int = 1\n @field_validator('b')\n def f(cls, v): return -v"),
    ),
    "when a validator runs": (
        MODEL.format("a: int = 1\n @field_validator('a', mode='before')\n def f(cls, v): return v"),
        MODEL.format("a: int = 1\n @field_validator('a', mode='after')\n def f(cls, v): return v"),
    ),
    "an annotated validator": (
        MODEL.format("a: Annotated[int, AfterValidator(lambda v: v)] = 1"),
        MODEL.format("a: Annotated[int, AfterValidator(lambda v: -v)] = 1"),
    ),
    "an annotated validator within": (
        MODEL.format("a: list[Annotated[int, AfterValidator(lambda v: v)]] = []"),
        MODEL.format("a: list[Annotated[int, AfterValidator(lambda v: -v)]] = []"),
    ),
    "a private attribute": (
        MODEL.format("_a: int = PrivateAttr(default_factory=lambda: 1)"),
        MODEL.format("_a: int = PrivateAttr(default_factory=lambda: 2)"),
    ),
    "a computed field": (
        MODEL.format("@computed_field\n @property\n def a(self) -> int: return 1"),
        MODEL.format("@computed_field\n @property\n def a(self) -> int: return 2"),
    ),
    "a default of a struct": (STRUCT.format("", 1), STRUCT.format("", 2)),
    "a factory of a struct": (
        STRUCT.format("", "field(default_factory=lambda: 1)"),
        STRUCT.format("", "field(default_factory=lambda: 2)"),
    ),
    "the config of a struct": (STRUCT.format(", frozen=True", 1), STRUCT.format("", 1)),
    "a constraint of a dataclass of pydantic": (
        "from pydantic import Field\nfrom pydantic.dataclasses import dataclass\n"
        "@dataclass\nclass C:\n a: int = Field(1, gt=0)\ndef step(): return C()",
        "from pydantic import Field\nfrom pydantic.dataclasses import dataclass\n"
        "@dataclass\nclass C:\n a: int = Field(1, gt=-1)\ndef step(): return C()",
    ),
    "how an enumeration is written": (
        "from enum import *\nclass C(str, Enum):\n A = 'a'\n __str__ = str.__str__\ndef step(): return C.A",
        "from enum import *\nclass C(str, Enum):\n A = 'a'\n __str__ = str.upper\ndef step(): return C.A",
    ),
    "a constant of a model": (
        "from pydantic import BaseModel\nclass C(BaseModel):\n a: int\nA = C(a=1)\ndef step(): return A",
        "from pydantic import BaseModel\nclass C(BaseModel):\n a: int\nA = C(a=2)\ndef step(): return A",
    ),
    "a constant of a dataclass": (
        DATACLASS.format("(frozen=True, slots=True)", "a: int") + "\nA = C(1)\ndef step(): return A",
        DATACLASS.format("(frozen=True, slots=True)", "a: int") + "\nA = C(2)\ndef step(): return A",
    ),
    "a member as a constant": (
        "from enum import Enum\nclass E(Enum):\n A = 1; B = 2\nC = E.A\ndef step(): return C",
        "from enum import Enum\nclass E(Enum):\n A = 1; B = 2\nC = E.B\ndef step(): return C",
    ),
    "self of a method": (
        "class C:\n def __init__(self, n): self.n = n\n def m(self): return self.n\nstep = C(1).m",
        "class C:\n def __init__(self, n): self.n = n\n def m(self): return self.n\nstep = C(2).m",
    ),
    "an object that is called": (
        "class C:\n def __call__(self): return 1\nstep = C()",
        "class C:\n def __call__(self): return 2\nstep = C()",
    ),
    "the state of an object that is called": (
        "class C:\n __slots__ = ('n',)\n def __call__(self): return self.n\nstep = C()\nstep.n = 1",
        "class C:\n __slots__ = ('n',)\n def __call__(self): return self.n\nstep = C()\nstep.n = 2",
    ),
}


SAME = {
    "comments and lines": ("def step(): return 1", "# more\n\n\ndef step():\n    # text\n\n    return 1"),
    "a function that is not reached": ("def step(): return 1", "def step(): return 1\ndef other(): return eval('1')"),
    "a constant that is not reached": ("A = 1\ndef step(): return 1", "A = 2\ndef step(): return 1"),
    "annotations": ("def step(x: int) -> int: return x", "def step(x: 'str') -> list: return x"),
    "the order of functions": (
        "def step(): return a() + b()\ndef a(): return 1\ndef b(): return 2",
        "def b(): return 2\ndef a(): return 1\ndef step(): return a() + b()",
    ),
    "the order of a set": ("A = {1, 9, 17}\ndef step(): return A", "A = {17, 9, 1}\ndef step(): return A"),
    "the order of methods": (
        CLASS.format("def m(self): return 1\n def n(self): return 2"),
        CLASS.format("def n(self): return 2\n def m(self): return 1"),
    ),
    "where a class is written": (CLASS.format("a = 1"), "\n\n\n" + CLASS.format("# text\n\n a = 1")),
    "where a model is written": (MODEL.format("a: int = 1"), "\n\n\n" + MODEL.format("# text\n\n a: int = 1")),
    "a logger": ("import logging\nL = logging.getLogger('a')\ndef step(): L.info('')",) * 2,
    "a recursive list": ("A = [1]; A.append(A)\ndef step(): return A",) * 2,
    "a recursive model": (MODEL.format("a: 'list[C]' = []"),) * 2,
    "a generic class": (
        "from typing import *\nT = TypeVar('T')\nclass C(Generic[T]):\n a: T\ndef step(c: C[int]): return c",
    )
    * 2,
    "a protocol": (
        "from typing import *\n@runtime_checkable\nclass C(Protocol):\n def f(self): ...\ndef step(c: C): return c.f()",
    )
    * 2,
    "an abstract class": (
        "import abc\nclass C(abc.ABC):\n @abc.abstractmethod\n def f(self): ...\ndef step(c: C): return C",
    )
    * 2,
    "a typed dict": ("from typing import *\nclass C(TypedDict):\n a: int\ndef step(c: C): return C(a=1)",) * 2,
    "flags": ("from enum import *\nclass C(IntFlag):\n A = 1; B = 2\nD = C.A | C.B\ndef step(): return C.A",) * 2,
    "an error class": ("class C(ValueError):\n def __init__(self, a): self.a = a\ndef step(): raise C(1)",) * 2,
    "a super call": ("class B: pass\nclass C(B):\n def __init__(self): super().__init__()\ndef step(): C()",) * 2,
    "an ordered dataclass": (DATACLASS.format("(order=True, slots=True, unsafe_hash=True)", "a: int = 1"),) * 2,
    "an import within of what is installed": (
        "def step():\n from importlib import metadata\n import os.path, json as j",
    )
    * 2,
    "what this library gives": ("from stepwell import Success\ndef step(): return Success(1)",) * 2,
    "a struct": ("from msgspec import Struct\nclass C(Struct): a: int = 1\ndef step(c: 'C | None'): return 1",) * 2,
    "a cached property": ("from functools import *\n" + CLASS.format("@cached_property\n def m(self): return 1"),) * 2,
    "a named tuple of old": ("from collections import *\nC = namedtuple('C', 'a b')\ndef step(): return C(1, 2)",) * 2,
}


# --- what has none ---

UNKNOWN = {
    "eval": ("def step(): return eval('1')", "main.step has no identity: it reaches `eval`"),
    "exec": ("def step(): exec('1')", "`exec`"),
    "globals": ("def step(): return globals()", "`globals`"),
    "compile": ("def step(): return compile('1', '', 'eval')", "`compile`"),
    "builtins": ("import builtins\ndef step(): return builtins.eval('1')", "`eval`"),
    "builtins as a value": ("import builtins\ndef step(n): return getattr(builtins, n)", "`builtins`"),
    "__import__": ("def step(): return __import__('os')", "`__import__`"),
    "import_module": (
        "import importlib\ndef step(): return importlib.import_module('os')",
        "`importlib.import_module`",
    ),
    "import_module by name": (
        "from importlib import import_module as f\ndef step(): f('os')",
        "`importlib.import_module`",
    ),
    "import_module from within": (
        "def step():\n from importlib import import_module\n import_module('os')",
        "import_module`",
    ),
    "sys.modules": ("import sys\ndef step(): return sys.modules['os']", "`sys.modules`"),
    "modules by name": ("from sys import modules\ndef step(): return modules['os']", "`sys.modules`"),
    "the environment": ("import os\ndef step(): return os.environ['A']", "`os.environ`"),
    "the environment by name": (
        "from os import environ\ndef step(): return environ['A']",
        "`environ` is a `os._Environ`",
    ),
    "getenv": ("import os\ndef step(): return os.getenv('A')", "`os.getenv`"),
    "a lock": ("import threading\nL = threading.Lock()\ndef step(): return L", "`L` is a `_thread.lock`"),
    "a generator": ("G = (i for i in '1')\ndef step(): return G", "`G` is a generator"),
    "an open file": ("import io\nF = io.BytesIO()\ndef step(): return F", "`F` is an open file"),
    "chance": ("import random\ndef step(): return random.random()", "a method of a `random.Random`"),
    "a method of a builtin object": ("A = [].append\ndef step(): A(1)", "`A` is a method of a `builtins.list`"),
    "what a library's object holds": (
        "import queue\nQ = queue.Queue()\ndef step(): return Q",
        "`Q` is a `queue.Queue`",
    ),
    "deep within": (
        "import threading\nA = {'a': [threading.Lock()]}\ndef step(): return f()\ndef f(): return A",
        "main.f has no identity: a part of `A` is a `_thread.lock`",
    ),
    "in a closure": (
        "import threading\ndef make(n):\n def f(): return n\n return f\nstep = make(threading.Lock())",
        "make.<locals>.f has no identity: `n` of its closure is",
    ),
    "in a default": ("import threading\ndef step(x=threading.Lock()): return x", "a default is a `_thread.lock`"),
    "in self": (
        "import threading\nclass C:\n def __init__(self): self.a = threading.Lock()\n def m(self): pass\nstep = C().m",
        "`a` of self of it is a `_thread.lock`",
    ),
    "in a class": (
        "import threading\n" + CLASS.format("lock = threading.Lock()"),
        "main.C has no identity: `lock` is a `_thread.lock`",
    ),
    "a list of an own class": ("class L(list): pass\nA = L()\ndef step(): return A", "`A` is a"),
    "a model that is not complete": (MODEL.format("a: 'D' = None").replace("return C()", "return C"), "rebuild it"),
    "a module that is not loaded": (
        "def step():\n from . import other\n return other\n### other\nA = 1",
        "not loaded yet",
    ),
    "code that is not written in Python": (
        "import msgspec\nE = msgspec.json.Encoder()\ndef step(): return E.encode(1)",
        "`E` is a `msgspec.json.Encoder`",
    ),
    "too deep a value": ("A = []\nfor _ in range(100): A = [A]\ndef step(): return A", "64 levels"),
}
