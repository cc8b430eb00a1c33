// launches_test.cpp: kernel<<<grid, block>>>(…) under g++: every form runs right on both machines, lines stay exact,
// and what a GPU refuses is refused in one line. The launches are in launches.cu, which nvcc compiles too.
// Run: ctest -L simt, or simt_launches_test
#include <doctest/doctest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <thread>

#include "sim/core/known_layouts.hpp"
#include "sim/error.hpp"
#include "sim/machine.hpp"
#include "tests/folder.hpp"
#include "tests/simt/launches.hpp"
#include "tests/simt/machines.hpp"

FLASH_LAUNCHES(on_sim)
FLASH_LAUNCHES(on_checked)

using flash::Error, flash::Profile;

namespace {

std::string line_of(const std::string& mark) {
  return flash::test::line_of("simt/launches.cu", mark);
}

// The functions of launches.cu for a machine's type.
template <class Machine>
void nothing() {
  if constexpr (std::is_same_v<Machine, Sim>)
    flash::on_sim::launch_nothing();
  else
    flash::on_checked::launch_nothing();
}
template <class Machine>
void shared(int bytes, int asked = -1) {
  if constexpr (std::is_same_v<Machine, Sim>)
    flash::on_sim::run_shared(bytes, asked);
  else
    flash::on_checked::run_shared(bytes, asked);
}

}  // namespace

TEST_CASE_TEMPLATE("a launch in every form reaches its kernel with its grid, block and arguments", Machine, MACHINES) {
  Machine m;
  const std::vector<flash::Form> forms = run_forms(m);
  CHECK(forms.size() == 44);
  for (const flash::Form& form : forms) {
    CAPTURE(form.name);
    CHECK(form.got == form.expected);
  }
}

TEST_CASE("reports name the kernel, a deduced one as the launch writes it") {
  Checked m;
  run_forms(m);
  std::vector<std::string> names;
  for (const flash::KernelReport& report : m.reports()) names.push_back(report.kernel);
  for (const char* name : {"add", "add_n<int, 32>", "add_as", "add_to<4>", "overloaded", "outer::hidden",
                           "outer::inner::add_one<int>", "nothing", "add_default"}) {
    CAPTURE(name);
    CHECK(std::find(names.begin(), names.end(), name) != names.end());
  }
}

TEST_CASE("findings name the lines of the source, behind and inside launches of several lines") {
  Checked m({.threads = 1, .keep_going = true});
  run_defects(m);
  REQUIRE(m.findings().size() == 2);
  CHECK(m.findings()[0].text == "barrier divergence: threads of one block wait at different barriers\n  waits  " +
                                    line_of("defect:2") + "  block (0,0,0) warp 1 lane 0\n  waits  " +
                                    line_of("defect:1") +
                                    "  block (0,0,0) warp 0 lane 0\n"
                                    "  remedy: let all threads reach the same __syncthreads()");
  CHECK(m.findings()[1].text == "out of bounds: write of sum[1] (4 bytes); sum has 1 elements\n  write  " +
                                    line_of("defect:3") +
                                    "  block (0,0,0) warp 0 lane 0\n  remedy: guard the access or fix the index");
}

// ---- the current machine ------------------------------------------------------------------------------------------

TEST_CASE_TEMPLATE("a launch goes to the last machine of its kind that the thread made and that still lives", Machine,
                   MACHINES) {
  using Other = std::conditional_t<std::is_same_v<Machine, Sim>, Checked, Sim>;
  const auto launches = [](const auto& m) { return m.reports().size(); };
  auto first = std::make_unique<Machine>();
  Other other;
  nothing<Machine>();
  {
    Machine second;
    nothing<Machine>();
    nothing<Machine>();
    CHECK(launches(second) == 2);
  }
  nothing<Machine>();
  CHECK(launches(*first) == 2);

  // The older one goes first; another thread's machine is its own.
  const auto third = std::make_unique<Machine>();
  first.reset();
  std::thread([&] {
    Machine elsewhere;
    nothing<Machine>();
    CHECK(launches(elsewhere) == 1);
  }).join();
  nothing<Machine>();
  CHECK(launches(*third) == 1);
  CHECK(launches(other) == 0);
}

TEST_CASE_TEMPLATE("a launch without a machine is refused", Machine, MACHINES) {
  using Other = std::conditional_t<std::is_same_v<Machine, Sim>, Checked, Sim>;
  const char* line =
      "the current machine is none; expected one that this thread made, for the launch of nothing; construct a Machine "
      "before it";
  CHECK_THROWS_WITH_AS(nothing<Machine>(), line, Error);
  { Machine gone; }
  const Other other;
  CHECK_THROWS_WITH_AS(nothing<Machine>(), line, Error);
  const Machine m;
  std::thread([&] { CHECK_THROWS_WITH_AS(nothing<Machine>(), line, Error); }).join();
  CHECK_NOTHROW(nothing<Machine>());
}

TEST_CASE_TEMPLATE("a launch in a kernel is refused", Machine, MACHINES) {
  Machine m;
  CHECK_THROWS_WITH_AS(
      run_parent(m),
      "a call in a kernel is the launch of nothing; expected it in host code; dynamic parallelism is not simulated",
      Error);
}

// ---- shared memory ------------------------------------------------------------------------------------------------

TEST_CASE_TEMPLATE("more than 48 KiB of shared memory must be asked for, kernel by kernel and machine by machine",
                   Machine, MACHINES) {
  const std::string line =
      "dynamic shared memory of nothing is 49153 bytes; expected at most 49152; call cudaFuncSetAttribute(nothing, "
      "cudaFuncAttributeMaxDynamicSharedMemorySize, 49153) before the launch";
  Machine m;
  CHECK_NOTHROW(shared<Machine>(49152));
  CHECK_THROWS_WITH_AS(shared<Machine>(49153), line.c_str(), Error);
  CHECK_NOTHROW(shared<Machine>(60000, 60000));
  CHECK_NOTHROW(shared<Machine>(60000));  // asked once
  CHECK_THROWS_WITH_AS(shared<Machine>(60001),
                       "dynamic shared memory of nothing is 60001 bytes; expected at most 60000; call "
                       "cudaFuncSetAttribute(nothing, cudaFuncAttributeMaxDynamicSharedMemorySize, 60001) before the "
                       "launch",
                       Error);
  CHECK(m.reports().size() == 3);
  CHECK(m.reports().back().ledger.shared_bytes_peak == 60000);
  {
    const Machine another;
    CHECK_THROWS_WITH_AS(shared<Machine>(49153), line.c_str(), Error);
  }
  CHECK_NOTHROW(shared<Machine>(100, 10));  // asking for less forbids nothing
}

TEST_CASE_TEMPLATE("asking for more shared memory than the machine has is refused", Machine, MACHINES) {
  const Machine h100({.profile = Profile::sm_90});
  CHECK_NOTHROW(shared<Machine>(232448, 232448));
  CHECK_THROWS_WITH_AS(shared<Machine>(0, 232449),
                       "dynamic shared memory of nothing is 232449 bytes; expected 0 to 232448 on sm_90; use smaller "
                       "tiles",
                       Error);
  CHECK_THROWS_WITH_AS(shared<Machine>(0, -2), doctest::Contains("nothing is -2 bytes; expected 0 to 232448"), Error);
  CHECK_THROWS_WITH_AS(shared<Machine>(232449),
                       "shared memory per block is 232449 bytes; expected at most 232448 bytes on sm_90; use smaller "
                       "tiles",
                       Error);
  const Machine a100({.profile = Profile::sm_80});
  CHECK_NOTHROW(shared<Machine>(166912, 166912));
  CHECK_THROWS_WITH_AS(shared<Machine>(0, 166913), doctest::Contains("expected 0 to 166912 on sm_80"), Error);
}

TEST_CASE_TEMPLATE("a deduced kernel gets 48 KiB: which one to ask for is not known", Machine, MACHINES) {
  Machine m;
  CHECK_NOTHROW(run_shared_deduced(m, 49152));
  CHECK_THROWS_WITH_AS(run_shared_deduced(m, 49153),
                       "dynamic shared memory of add_as is 49153 bytes; expected at most 49152; write its template "
                       "arguments at the launch, and call cudaFuncSetAttribute(add_as, "
                       "cudaFuncAttributeMaxDynamicSharedMemorySize, 49153) before the launch",
                       Error);
}

TEST_CASE("the kernel's struct may be smaller than what the launch gives, not larger, and findings know both") {
  const Checked m({.threads = 1, .keep_going = true});
  const auto found = [&](int bytes, int at) {
    const std::size_t before = m.findings().size();
    flash::on_checked::run_struct(bytes, at);
    return m.findings().size() > before ? m.findings().back().text.substr(0, m.findings().back().text.find('\n')) : "";
  };
  CHECK(found(256, 252) == "");
  CHECK(found(512, 252) == "");
  CHECK(found(256, 256) == "out of bounds: write of shared Row+256 (4 bytes); Row has 256 bytes");
  CHECK(found(512, 512) == "out of bounds: write of shared Row+512 (4 bytes); Row has 256 bytes, the block 512");
  CHECK_THROWS_WITH_AS(
      found(255, 0),
      "the shared struct Row is 256 bytes; expected at most the 255 that the launch gives; launch with "
      "<<<grid, block, sizeof(Row)>>>",
      Error);
}

// ---- what does not compile ----------------------------------------------------------------------------------------

namespace {

// What g++ prints when it compiles this through flash-launches, the folder's name left out; "" when it succeeds.
std::string compiled(const std::string& source, const std::string& flags = "") {
  namespace fs = std::filesystem;
  const flash::test::Folder folder;
  std::ofstream(folder / "k.cu.cpp") << source;
  const std::string at = folder.path().string();
  const std::string command = "'" FLASH_LAUNCHES_PROGRAM "' '" FLASH_CXX "' -std=c++20 -MD -MT k.o -MF '" + at +
                              "/k.d' " + flags + " -o '" + at + "/k.o' -c '" + at + "/k.cu.cpp' 2>&1";
  std::string printed;
  FILE* const pipe = popen(command.c_str(), "r");
  REQUIRE(pipe);
  std::array<char, 4096> part;
  while (std::fgets(part.data(), part.size(), pipe)) printed += part.data();
  CHECK(WEXITSTATUS(pclose(pipe)) == (printed.empty() ? 0 : 1));
  CHECK(fs::exists(folder / "k.o") == printed.empty());
  if (printed.empty()) CHECK(flash::test::get(folder / "k.d").find("k.cu.cpp") != std::string::npos);
  for (const fs::directory_entry& entry : fs::directory_iterator(folder.path()))
    CHECK_MESSAGE(entry.path().extension() != ".ii", entry.path());
  for (std::size_t i; (i = printed.find(at + "/")) != std::string::npos;) printed.erase(i, at.size() + 1);
  return printed;
}

}  // namespace

TEST_CASE("a launch that cannot be read is one sentence with its file and line") {
  const std::string remedy = "; write kernel<<<grid, block, bytes, stream>>>(arguments)\n";
  const std::string no_end = " error: not a launch: there is no >>>(arguments) after <<<" + remedy;
  const std::string no_kernel = " error: not a launch: there is no kernel's name before <<<" + remedy;
  CHECK(compiled("void f() {\n\n  k<<<1, 2>>;\n}\n") == "k.cu.cpp:3:" + no_end);
  CHECK(compiled("#define END >>>\nvoid f() {\n  k<<<1, 2 END;\n}\n") == "k.cu.cpp:3:" + no_end);
  CHECK(compiled("void f() {\n  g(k<<<1, 2>>>);\n}\n") == "k.cu.cpp:2:" + no_end);
  CHECK(compiled("void f() {\n  <<<1, 2>>>(3);\n}\n") == "k.cu.cpp:2:" + no_kernel);
  CHECK(compiled("int f() {\n  return <<<1, 2>>>(3);\n}\n") == "k.cu.cpp:2:" + no_kernel);
  CHECK(compiled("# 70 \"other.cuh\"\nvoid f() {\n  3<<<1, 2>>>(3);\n}\n") == "other.cuh:71:" + no_kernel);
}

TEST_CASE("other errors are the compiler's, at the lines of the source") {
  const std::string flags = "-fno-diagnostics-show-caret -I '" FLASH_SOURCE_DIR "' -DFLASH_MACHINE=on_sim";
  const std::string head = "#include \"gpu/kernel.cuh\"\nusing namespace flash;\n__global__ void k(int*, float) {}\n";
  CHECK(compiled(head + "void f(int* x) {\n  k<<<1,\n      2>>>(x,\n            3);\n}\n", flags) == "");
  // The lines of all errors of one file.
  const std::string printed = compiled(head +
                                           "void f(int* x) {\n"
                                           "  k<<<1,\n\n 2>>>(x);\n"       // 5-7: an argument is missing
                                           "  k<<<1, 2>>>(x, x);\n"        // 8: no float
                                           "  k<<<1>>>(x, 1);\n"           // 9: no block
                                           "  unknown<<<1, 1>>>(x, 1);\n"  // 10
                                           "  k\n<<<1, 1>>>(x, 1);\n\n"    // 11-13
                                           "  int y = x;\n"                // 14
                                           // So many that the preprocessor puts a line marker there.
                                           "  k" +
                                           std::string(20, '\n') +
                                           "<<<1, 1>>>(x, 1);\n"  // 15-35
                                           "  int z = x;\n}\n",   // 36
                                       flags);
  std::set<std::string> lines;
  std::istringstream all(printed);
  for (std::string line; std::getline(all, line);)
    if (line.starts_with("k.cu.cpp:") && line.find(": error: ") != std::string::npos)
      lines.insert(line.substr(0, line.find(':', line.find(':') + 1)));
  const std::set<std::string> wrong{"k.cu.cpp:7",  "k.cu.cpp:8",  "k.cu.cpp:9",
                                    "k.cu.cpp:10", "k.cu.cpp:14", "k.cu.cpp:36"};
  CHECK_MESSAGE(lines == wrong, printed);
}

TEST_CASE("what would compile and mean something else than in CUDA is refused with its line") {
  const std::string assembly = ": error: inline assembly is not simulated; write the operation in CUDA C++\n";
  CHECK(compiled("void f() {\n  asm(\"bar.sync 0;\");\n}\n") == "k.cu.cpp:2" + assembly);
  CHECK(compiled("void f() {\n\n  __asm__ volatile(\"\");\n}\n") == "k.cu.cpp:3" + assembly);
  const std::string arch =
      ": error: __CUDA_ARCH__ has no value here: host and device code are compiled as one; leave it out\n";
  CHECK(compiled("int x;\n#if __CUDA_ARCH__ >= 800\n#endif\n") == "k.cu.cpp:2" + arch);
  CHECK(compiled("#ifdef  __CUDA_ARCH__\n#endif\n") == "k.cu.cpp:1" + arch);
  CHECK(compiled("// __CUDA_ARCH__\n/* #if __CUDA_ARCH__\n*/ const char* s = \"__CUDA_ARCH__\";\n") == "");
  CHECK(compiled("void f() {\n  __shared__ int x = 3;\n}\n") ==
        "k.cu.cpp:2: error: a __shared__ variable cannot be initialised; assign to it in the kernel\n");
  CHECK(compiled("__shared__ int x\n") == "k.cu.cpp:1: error: this declaration has no end; write ; behind it\n");
}

TEST_CASE("__device__ says nothing on functions, whatever they look like") {
  CHECK(compiled(
            "struct S {\n  __device__ S() {}\n  __device__ ~S() {}\n  __device__ operator float() const { return 1; }\n"
            "  __device__ bool operator<(S) const { return true; }\n  static __device__ int n() { return 1; }\n};\n"
            "template <class T> __device__ T twice(T x) { return x + x; }\n"
            "template <class A, class B> struct P {};\n__device__ P<int, P<int, int>> make() { return {}; }\n"
            "inline __device__ __attribute__((always_inline)) decltype(1 + 1) f(const float* x) { return *x > 0; }\n"
            "__device__ auto lambda() { return [] __device__ (int i) { return i; }(1); }\n"
            "__device__ int (*pointer)(const float*) = f;\nint use() { return pointer == f && S::n(); }\n",
            "-Wall -Wextra") == "");
}

TEST_CASE("what is no launch passes, without a new warning: operator<<<, strings, comments") {
  CHECK(compiled("int f(int x) {\n  switch (x) {\n    case 1:\n      x += 2;  // k<<<1, '\n      // fall through\n"
                 "    case 2: /* \" k<<< */\n      return x;\n  }\n  return 0;\n}\n",
                 "-Wall -Wextra") == "");
  CHECK(compiled("struct A {};\ntemplate <class T> void operator<< (A, T) {}\nvoid f(A a) { operator<<<int>(a, 1); }\n"
                 "template void operator<< <long>(A, long);\n"
                 "const char* s = \"k<<<1, 2>>\"; const char* r = R\"x(k)\" <<<1 )x\"; int c = '\\'';\n") == "");
}

// ---- two files of one program ---------------------------------------------------------------------------------------

namespace {

const std::string two_structs_remedy =
    "; expected one definition in a program; give one of the two another name, or put each into an unnamed namespace";

}  // namespace

TEST_CASE("two structs of one name are told by their sizes, alignments and members") {
  using flash::simt::Layout;
  struct Smem {};
  struct Options {};
  const auto said = [](const std::vector<Layout>& of_smem) {
    flash::simt::Layouts all;
    all.note(typeid(Options), {4, 4, 1}, "a.cu");  // another struct says nothing
    for (std::size_t i = 0; i < of_smem.size(); ++i)
      all.note(typeid(Smem), of_smem[i], std::array{"a.cu", "b.cu", "c.cu"}[i]);
    try {
      all.refuse_two();
    } catch (const Error& error) {
      const std::string line = error.what();
      CHECK(line.ends_with(two_structs_remedy));
      CHECK(line.starts_with("struct "));
      const std::size_t begin = line.find("Smem");
      REQUIRE(begin != std::string::npos);
      return line.substr(begin, line.size() - two_structs_remedy.size() - begin);
    }
    return std::string();
  };
  CHECK(said({}) == "");
  CHECK(said({{384, 4, 7}, {384, 4, 7}}) == "");
  CHECK(said({{384, 4, 0}, {384, 4, 7}, {384, 4, 7}}) == "");  // 0: its members are not known
  CHECK(said({{384, 4, 7}, {512, 4, 7}}) == "Smem is 384 bytes in a.cu and 512 bytes in b.cu");
  CHECK(said({{384, 4, 7}, {512, 4, 7}, {640, 4, 7}}) == "Smem is 384 bytes in a.cu and 512 bytes in b.cu");
  CHECK(said({{384, 4, 7}, {384, 4, 8}}) == "Smem is 384 bytes in a.cu and in b.cu, of other members there");
  CHECK(said({{384, 4, 0}, {384, 4, 7}, {384, 4, 8}}) ==
        "Smem is 384 bytes in b.cu and in c.cu, of other members there");
  CHECK(said({{384, 4, 7}, {384, 16, 7}}) == "Smem is 384 bytes in a.cu and in b.cu, of other members there");
}

// The same from end to end: what two kernel files make of their structs, linked as the build links them.
TEST_CASE("two files that mean different structs by one name make no program") {
  const flash::test::Folder folder;
  const auto printed = [&](const std::string& command) {
    const std::string at = folder.path().string();
    FILE* const pipe = popen((". '" FLASH_CHECK_SETTINGS "'; cd '" + at + "'; { " + command + "; } 2>&1").c_str(), "r");
    REQUIRE(pipe);
    std::string all;
    std::array<char, 4096> part;
    while (std::fgets(part.data(), part.size(), pipe)) all += part.data();
    pclose(pipe);
    return all;
  };
  const auto compile = [&](const std::string& name, const std::string& text) {
    std::ofstream(folder / (name + ".cu")) << "#include \"gpu/kernel.cuh\"\nnamespace flash::inline FLASH_MACHINE {\n"
                                           << text;
    CHECK(printed("\"$LAUNCHES\" \"$CXX\" $FLAGS_sim -O0 -I\"$ROOT\" -x c++ -c " + name + ".cu -o " + name + ".o") ==
          "");
  };
  compile("a", R"(
struct Smem { float q[64], k[32]; };
struct Alike { float a; int b; };
namespace { struct Mine { float a[100]; }; }
struct Options { int rows; };
__global__ void first(Options o) {
  shared<Smem>().q[threadIdx.x] = static_cast<float>(o.rows);
}
void run_second(Machine&);
void use(Machine& m) {
  m.alloc<Alike>("alike", 3), m.alloc<Mine>("mine", 3);
  launch<Smem>(m, first, 1, 32, Options{1});
  run_second(m);
}
}
#include <cstdio>
#include "sim/error.hpp"
int main() {
  try {
    flash::Machine m;
    flash::use(m);
    std::puts("runs");
  } catch (const flash::Error& error) {
    std::puts(error.what());
  }
})");
  const auto second = [&](const std::string& smem) {
    compile("b", "struct Smem { " + smem + R"( };
struct Options { int rows; };
struct Alike { float a; int b; };
namespace { struct Mine { double a[7]; }; }
__global__ void second(Options) {
  shared<Smem>().k[threadIdx.x] = 1;
}
void run_second(Machine& m) {
  m.alloc<Alike>("alike", 3), m.alloc<Mine>("mine", 3);
  launch<Smem>(m, second, 1, 32, Options{});
}
})");
    return printed("\"$CXX\" a.o b.o \"$LIBRARY\" $LIBRARIES -o p && ./p");
  };
  CHECK(second("float q[64], k[32];") == "runs\n");
  CHECK(second("float q[32], k[64];") ==
        "struct Smem is 384 bytes in a.cu and in b.cu, of other members there" + two_structs_remedy + "\n");
}
