// Names of torch in pickles: types of elements, storages, and all that its own loader holds to be safe.
// As modulekg_widgets/engine/files/formats/pickle/torch_names.py has them.

import { excerpt } from "../bytes/bounds";

const BYTES =
  "uint8 int8 bool qint8 quint8 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu " +
  "float4_e2m1fn_x2 bits8 bits1x8 bits2x4 bits4x2 " +
  "int1 int2 int3 int4 int5 int6 int7 uint1 uint2 uint3 uint4 uint5 uint6 uint7";

const BY_BITS: readonly (readonly [bits: number, words: string])[] = [
  [8, BYTES],
  [16, "int16 uint16 float16 bfloat16 bits16"],
  [32, "int32 uint32 float32 complex32 qint32 bcomplex32"],
  [64, "int64 uint64 float64 complex64"],
  [128, "complex128"],
  [4, "quint4x2"],
  [2, "quint2x4"]
];

/** How many bits an element takes, by torch's word. */
export const BITS: ReadonlyMap<string, number> = new Map(
  BY_BITS.flatMap(([bits, words]) => words.split(" ").map((word): [string, number] => [word, bits]))
);

/** By the name of the class: what a storage has; an untyped one has bytes. */
export const STORAGES: ReadonlyMap<string, string> = new Map([
  ["DoubleStorage", "float64"],
  ["FloatStorage", "float32"],
  ["HalfStorage", "float16"],
  ["BFloat16Storage", "bfloat16"],
  ["LongStorage", "int64"],
  ["IntStorage", "int32"],
  ["ShortStorage", "int16"],
  ["CharStorage", "int8"],
  ["ByteStorage", "uint8"],
  ["BoolStorage", "bool"],
  ["ComplexDoubleStorage", "complex128"],
  ["ComplexFloatStorage", "complex64"],
  ["QUInt8Storage", "quint8"],
  ["QInt8Storage", "qint8"],
  ["QInt32Storage", "qint32"],
  ["QUInt4x2Storage", "quint4x2"],
  ["QUInt2x4Storage", "quint2x4"],
  ["UntypedStorage", "uint8"]
]);

const DENSE = ["BFloat16", "Byte", "Char", "Double", "Float", "Half", "Int", "Long", "Short"];
const ON_CUDA = [...STORAGES.keys()].filter(name => !/^[QU]/.test(name));
const REBUILT =
  "tensor tensor_v2 tensor_v3 parameter parameter_with_state qtensor sparse_tensor nested_tensor wrapper_subclass " +
  "meta_tensor_no_storage device_tensor_from_numpy device_tensor_from_cpu_tensor";
const OTHERS =
  "torch.per_tensor_affine torch.per_tensor_symmetric torch.per_channel_affine torch.per_channel_symmetric " +
  "torch.per_channel_affine_float_qparams torch._tensor._rebuild_from_type_v2 torch.Size torch.Tensor torch.device " +
  "torch.nn.parameter.Parameter torch.serialization._get_layout torch.storage.TypedStorage " +
  "torch.storage.UntypedStorage collections.Counter collections.OrderedDict _codecs.encode builtins.bytearray " +
  "builtins.complex builtins.set";
const PLACES = ["", "cuda."];

const SAFE: ReadonlySet<string> = new Set([
  ...[...BITS.keys()].map(name => `torch.${name}`),
  ...[...STORAGES.keys()].filter(name => name !== "UntypedStorage").map(name => `torch.${name}`),
  ...ON_CUDA.map(name => `torch.cuda.${name}`),
  ...PLACES.flatMap(place => [...DENSE, "Bool"].map(name => `torch.${place}${name}Tensor`)),
  ...PLACES.flatMap(place => DENSE.map(name => `torch.${place}sparse.${name}Tensor`)),
  ...REBUILT.split(" ").map(what => `torch._utils._rebuild_${what}`),
  ...OTHERS.split(" ")
]);
/** What torch writes into the pickles of TorchScript, whose own loader takes it for types of values. */
const SCRIPT_TYPES: ReadonlySet<string> = new Set(
  [
    "build_intlist",
    "build_tensorlist",
    "build_doublelist",
    "build_boollist",
    "build_tensor_from_id",
    "restore_type_tag"
  ].map(name => `torch.jit._pickle.${name}`)
);

// what reaches beyond the model, to be named first: all of some modules, and some of others
const DANGEROUS_MODULES: ReadonlySet<string> = new Set(
  (
    "os posix nt subprocess sys shutil socket pty runpy importlib ctypes _ctypes marshal code codeop pickle _pickle " +
    "webbrowser multiprocessing asyncio threading _thread signal http urllib ftplib smtplib tempfile io _io pip timeit " +
    "pdb bdb cProfile profile operator _operator"
  ).split(" ")
);
const DANGEROUS_NAMES: ReadonlySet<string> = new Set(
  (
    "types.FunctionType types.CodeType copyreg._extension_registry torch.load " +
    "torch.hub.load torch.serialization.load numpy.load " +
    "builtins.eval builtins.exec builtins.compile builtins.open builtins.__import__ builtins.getattr builtins.setattr " +
    "builtins.delattr builtins.globals builtins.locals builtins.vars builtins.input builtins.breakpoint " +
    "builtins.apply builtins.execfile builtins.map builtins.filter"
  ).split(" ")
);
const MAX_NAMED = 8;

/** Whether something that a file would have imported reaches beyond the model: files, processes, other code. */
const isDangerous = (path: string) =>
  DANGEROUS_MODULES.has(path.split(".", 1)[0]) || DANGEROUS_NAMES.has(path.split("[", 1)[0]);

/** What to say of a file that names more than torch's own loader takes to be safe, the most dangerous first. */
export function codeWarnings(classes: readonly string[], loader: string, isScript: boolean): string[] {
  const isSafe = (path: string) => SAFE.has(path) || (isScript && SCRIPT_TYPES.has(path));
  const unsafe = classes.filter(path => !isSafe(path)).sort();
  const beyond = [...unsafe.filter(isDangerous), ...unsafe.filter(path => !isDangerous(path))];
  if (beyond.length === 0) return [];
  const listed = beyond.slice(0, MAX_NAMED).map(path => excerpt(path));
  const named = listed.join(", ") + (beyond.length > MAX_NAMED ? ", …" : "");
  const text = `${loader} would import and run code that this file names, beyond what torch holds to be safe: ${named}`;
  return [
    isDangerous(beyond[0])
      ? `${text}. That may do anything on your computer: do not load it`
      : `${text}. Load it only if you trust where it comes from`
  ];
}
