"""More programs for the tests of code identity: what hides from one who goes through code by its names."""

from __future__ import annotations

CLASS = "class C:\n {}\ndef step(): return C"
ENUM = "from enum import *\nclass C(Enum):\n A = 1\n {}\ndef step(): return C.A"
MODEL = (
    "from pydantic import *\nfrom typing import *\nclass C(BaseModel):\n {}\ndef step(): return C.model_json_schema()"
)
MADE = "from {} import *\nC = {}\ndef step(): return C()"
FUNCTION = "def f(x: {0}) -> {0}: return x\nf.limit = {1}\nALL = [f]\n"
WITHIN = "def step():\n class C:\n  a = 4\n  def m(self): self.x = 1; self.y = 2\n return C"

CHANGED_TRAPS = {
    "a private property of an enumeration": (
        ENUM.format("@property\n def _l(self): return 1"),
        ENUM.format("@property\n def _l(self): return 2"),
    ),
    "a private constant of an enumeration": (ENUM.format("__x = 1"), ENUM.format("__x = 2")),
    "a class within an enumeration": (
        ENUM.format("@nonmember\n class _In:\n  x = 1"),
        ENUM.format("@nonmember\n class _In:\n  x = 2"),
    ),
    "the boundary of flags": (
        ENUM.replace("Enum)", "Flag, boundary=KEEP)").format(""),
        ENUM.replace("Enum)", "Flag, boundary=CONFORM)").format(""),
    ),
    "how a member is shown": (
        ENUM.replace("class", "@global_enum\nclass").replace("(Enum", "(IntEnum").format(""),
        ENUM.replace("(Enum", "(IntEnum").format(""),
    ),
    "whether objects are hashed": (CLASS.format("__hash__ = None"), CLASS.format("pass")),
    "the docstring of a class": (CLASS.format("'A'"), CLASS.format("'B'")),
    "the docstring of a model": (MODEL.format("'A'\n a: int"), MODEL.format("'B'\n a: int")),
    "a description": (MODEL.format("a: int = Field(description='A')"), MODEL.format("a: int = Field(description='B')")),
    "an example": (MODEL.format("a: int = Field(examples=[1])"), MODEL.format("a: int = Field(examples=[2])")),
    "what a schema is given": (
        MODEL.format("a: int = Field(json_schema_extra={'a': 1})"),
        MODEL.format("a: int = Field(json_schema_extra={'a': 2})"),
    ),
    "that a field is deprecated": (
        MODEL.format("a: int = Field(deprecated='A')"),
        MODEL.format("a: int = Field(deprecated='B')"),
    ),
    "when a field is left out": (
        MODEL.format("a: int = Field(exclude_if=lambda v: v == 1)"),
        MODEL.format("a: int = Field(exclude_if=lambda v: v == 2)"),
    ),
    "an annotated field": (
        MODEL.format("a: Annotated[int, Field(gt=1)]"),
        MODEL.format("a: Annotated[int, Field(gt=2)]"),
    ),
    "an annotated field within": (
        MODEL.format("a: list[Annotated[int, Field(description='A')]]"),
        MODEL.format("a: list[Annotated[int, Field(description='B')]]"),
    ),
    "what a computed field says": (
        MODEL.format("@computed_field(description='A')\n @property\n def b(self) -> int: return 1"),
        MODEL.format("@computed_field(description='B')\n @property\n def b(self) -> int: return 1"),
    ),
    "a dataclass that is made by a call": (
        MADE.format("dataclasses", "make_dataclass('C', [], namespace={'m': lambda self: 1})"),
        MADE.format("dataclasses", "make_dataclass('C', [], namespace={'m': lambda self: 2})"),
    ),
    "a class that is made by a call": (
        MADE.format("types", "new_class('C', (), {}, lambda names: names.update(a=1))"),
        MADE.format("types", "new_class('C', (), {}, lambda names: names.update(a=2))"),
    ),
    "a class that is made without a module": (
        "names = {}\nexec('class C:\\n a = 1\\ndef step(): return C.a', names)\nstep = names['step']",
        "names = {}\nexec('class C:\\n a = 2\\ndef step(): return C.a', names)\nstep = names['step']",
    ),
    "a class that says another module": (
        CLASS.format("__module__ = 'json'\n a = 1"),
        CLASS.format("__module__ = 'json'\n a = 2"),
    ),
    "a module that nobody has registered": (
        "import types\nm = types.ModuleType('profile')\nexec('A = 1\\ndef f(): return A', vars(m))\n"
        "f = m.f\ndef step(): return f()",
        "import types\nm = types.ModuleType('profile')\nexec('A = 2\\ndef f(): return A', vars(m))\n"
        "f = m.f\ndef step(): return f()",
    ),
    "what a module says of itself": (
        "from . import other\ndef step(n): return getattr(other, n)\n### other\n__version__ = '1'",
        "from . import other\ndef step(n): return getattr(other, n)\n### other\n__version__ = '2'",
    ),
    "a validator of what is no model": (
        "from pydantic import *\nclass M:\n @field_validator('a')\n @classmethod\n def v(cls, a): return 1\n"
        "class C(M, BaseModel):\n a: int\ndef step(): return C(a=3)",
        "from pydantic import *\nclass M:\n @field_validator('a')\n @classmethod\n def v(cls, a): return 2\n"
        "class C(M, BaseModel):\n a: int\ndef step(): return C(a=3)",
    ),
    "the name that a function was given": (
        "def f(): pass\nf.__name__ = 'a'\ndef step(): return f.__name__",
        "def f(): pass\nf.__name__ = 'b'\ndef step(): return f.__name__",
    ),
    "the order of attributes": (
        "class C: pass\nc = C(); c.a = 1; c.b = 2\ndef step(): return vars(c)",
        "class C: pass\nc = C(); c.b = 2; c.a = 1\ndef step(): return vars(c)",
    ),
    "what a partial was given": (
        "from functools import *\np = partial(int)\np.a = 1\ndef step(): return p.a",
        "from functools import *\np = partial(int)\np.a = 2\ndef step(): return p.a",
    ),
    "what a cached function was given": (
        "from functools import *\n@cache\ndef f(): pass\nf.a = 1\ndef step(): return f.a",
        "from functools import *\n@cache\ndef f(): pass\nf.a = 2\ndef step(): return f.a",
    ),
    "what a queue holds": (
        "from collections import *\nd = deque([1], 3)\ndef step(): return d",
        "from collections import *\nd = deque([1], 4)\ndef step(): return d",
    ),
    "what a namespace holds": (
        "from types import *\nn = SimpleNamespace(a=1)\ndef step(): return n",
        "from types import *\nn = SimpleNamespace(a=2)\ndef step(): return n",
    ),
    "what a slice holds": ("s = slice(1)\ndef step(): return s", "s = slice(2)\ndef step(): return s"),
    "what is adapted": (
        "from pydantic import *\nA = TypeAdapter(list[int])\ndef step(): return A.validate_json('[1]')",
        "from pydantic import *\nA = TypeAdapter(list[float])\ndef step(): return A.validate_json('[1]')",
    ),
    "how it is adapted": (
        "from pydantic import *\nA = TypeAdapter(list[int], config={'strict': True})\ndef step(): return A",
        "from pydantic import *\nA = TypeAdapter(list[int])\ndef step(): return A",
    ),
    "an attribute of a function in a list": (
        FUNCTION.format("int", 1) + "def step(): return [f.limit for f in ALL]",
        FUNCTION.format("int", 2) + "def step(): return [f.limit for f in ALL]",
    ),
    "annotations that are read": (
        FUNCTION.format("int", 1) + "def step(): return [f.__annotations__ for f in ALL]",
        FUNCTION.format("str", 1) + "def step(): return [f.__annotations__ for f in ALL]",
    ),
    "annotations that are asked for": (
        FUNCTION.format("int", 1) + "import typing\ndef step(): return typing.get_type_hints(f)",
        FUNCTION.format("str", 1) + "import typing\ndef step(): return typing.get_type_hints(f)",
    ),
    "a line that is a constant of a class within": (WITHIN, WITHIN.replace("a = 4", "a = 5")),
    "what a library's module was told to do": (
        "import concurrent.futures as c\nc.wait = lambda *a: 1\ndef step(): return c.wait()",
        "import concurrent.futures as c\nc.wait = lambda *a: 2\ndef step(): return c.wait()",
    ),
    "what is imported within was told to do": (
        "import json\njson.old = lambda: 1\ndef step():\n from json import old\n return old()",
        "import json\njson.old = lambda: 2\ndef step():\n from json import old\n return old()",
    ),
}

SAME_TRAPS = {
    "where a class within is written": (WITHIN, "\n\n\n" + WITHIN.replace("def m", "# more\n\n  def m")),
    "a docstring that a dataclass makes": (
        "from dataclasses import *\n@dataclass\nclass C:\n a: object = lambda: 1\ndef step(): return C()",
    )
    * 2,
    "an attribute of a function that nobody reads": (
        "def step(): return 1",
        "def step(): return 1\nstep.calls = iter('')",
    ),
    "what is handed to a library within": ("def step():\n import os.path as p, json as j\n return j, p.join('a')",) * 2,
}

UNKNOWN_TRAPS = {
    "the environment, imported within": ("def step():\n import os\n return os.environ['A']", "`os.environ`"),
    "the environment under another name": ("def step():\n import os as o\n return o.getenv('A')", "`os.getenv`"),
    "the environment for a function within": (
        "def step():\n import os\n return [f() for f in [lambda: os.environ['A']]]",
        "`os.environ`",
    ),
    "the environment in a closure": (
        "def make():\n import os\n def step(): return os.environ\n return step\nstep = make()",
        "`os.environ`",
    ),
    "modules, imported within": ("def step():\n import sys\n return sys.modules['os']", "`sys.modules`"),
    "a module in a variable": ("import os\ndef step():\n o = os\n return o.environ", "hands on the module `os`"),
    "a module in a variable, imported within": (
        "def step(f):\n import os\n return f(os)",
        "hands on the module `os`",
    ),
    "the text of a function": (
        "import inspect\ndef step(): return inspect.getsource(step)",
        "`inspect.getsource`",
    ),
    "the environment in a path": ("import os\ndef step(): return os.path.expandvars('$A')", "expandvars`"),
    "the current folder": ("from os import getcwd\ndef step(): return getcwd()", "getcwd`"),
    "all classes": ("class C: pass\ndef step(): return C.__subclasses__()", "`__subclasses__`"),
    "globals of a function": ("def step(f): return f.__globals__", "`__globals__`"),
}
