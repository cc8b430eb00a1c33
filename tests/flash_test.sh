#!/bin/sh
# flash_test.sh: what ./flash says and how it exits when something is wrong, from a system without tools.
# Nothing is built or installed here: `./flash test` and `./flash tour` themselves are the test of the rest.
# sh tests/flash_test.sh
# shellcheck disable=SC2016  # scripts that are written here expand when they run
set -eu
flash=$(cd "$(dirname "$0")/.." && pwd)/flash
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" # any directory will do
failed=0
path=$PATH

# expect STATUS TEXT ARGUMENT…: ./flash ARGUMENT… exits with STATUS and prints TEXT.
expect() {
  want=$1 text=$2 status=0
  shift 2
  out=$(PATH=$path "$flash" "$@" 2>&1 </dev/null) || status=$?
  case $status:$out in
    "$want":*"$text"*) ;;
    *) failed=1; printf './flash %s: exit %s, want %s and "%s":\n%s\n' "$*" "$status" "$want" "$text" "$out" ;;
  esac
}

expect 0 'usage: ./flash'
expect 0 'usage: ./flash' help
expect 0 'usage: ./flash' --help
expect 0 'usage: ./flash check' check
expect 0 'usage: ./flash check' check --help
expect 0 'usage: ./flash exercise' exercise --help
expect 0 'usage: ./flash exercise' exercise 05.2 -h
for command in test book notebook bench doctor help; do expect 0 'usage: ./flash' "$command" --help; done
expect 2 "command 'walk' is unknown; expected tour, test, book, notebook, exercise, run, check, bench, doctor" walk
expect 2 "flag '--fast' is unknown; expected --no-install, --cuda or --help" --fast test
expect 2 "flag '--fast' is unknown; expected --no-install or --cuda" test --fast
expect 2 "phase '77' is unknown; expected one of: 01 02 03 04" test 77
expect 2 "phase 'x/..' is unknown; expected one of: 01" tour x/..
expect 2 "'02' is one argument too many" test 01 02
expect 2 "'02' is one argument too many; test --cross takes none" test --cross 02
expect 2 "phase '99' is unknown; expected one of: 01" book 99
expect 2 "'03' is one argument too many; --check is about all pages" book --check 03
expect 2 "'--golden' is one argument too many; expected --run alone" book --run --golden
expect 2 "'05' is one argument too many; expected at most one phase" book 04 05
expect 2 "flag '--chekc' is unknown; expected --no-install or --cuda" book --chekc
expect 2 'notebook wants the number of a phase' notebook
expect 2 "phase 'x' is unknown; expected one of: 01" notebook x
expect 2 "phase 01 has no page 'phases'" notebook 1 phases
expect 2 "'more' is one argument too many" notebook 01 notebook more

# A system that has the shell's tools and nothing else.
mkdir bin
for tool in sh dirname readlink nproc id sed sort uniq head tr grep cat env mkdir uname basename; do
  ln -s "$(command -v $tool)" "bin/$tool"
done
path=$work/bin
export FLASH_BUILD="$work/a build"
unset CXX
expect 1 'missing: cmake ninja-build g++' --no-install test
expect 1 'run as root: apt-get install -y --no-install-recommends cmake ninja-build g++' test --no-install
expect 1 "install them with this system's package manager" tour
expect 1 'C++ compiler       MISSING  g++ 11 or newer: apt-get install g++' doctor
printf '#!/bin/sh\nexit 0\n' >bin/apt-get
printf '#!/bin/sh\necho 1000\n' >fake-id
chmod +x bin/apt-get fake-id
mv fake-id bin/id
expect 1 'ask an administrator to run: apt-get install -y --no-install-recommends cmake ninja-build g++' test
printf '#!/bin/sh\nexit 1\n' >bin/sudo
chmod +x bin/sudo
expect 1 'sudo wants a password; run: sudo apt-get install' test
[ ! -e "$FLASH_BUILD" ] || { failed=1; echo 'a build directory was made although tools are missing'; }

# A system without the libraries, too: the same script, which looks for them elsewhere than in /usr.
mkdir bare usr
ln -s "$(dirname "$flash")/phases" bare
sed "s|/usr/local /usr|$work/usr|" "$flash" >bare/flash
chmod +x bare/flash
cat >bin/apt-get <<'END'
#!/bin/sh
echo "$DEBIAN_FRONTEND: $*" >>"$WORK/apt"
END
export WORK="$work"
everything='cmake ninja-build g++ libeigen3-dev doctest-dev xtl-dev libxtensor-dev'
flash_here=$flash
flash=$work/bare/flash
for user in 0 1000; do # root, and one whom sudo lets do it
  printf '#!/bin/sh\necho %s\n' $user >bin/id
  printf '#!/bin/sh\n[ "$1" != -n ] || exit 0\necho sudo >>"$WORK/apt"\nexec "$@"\n' >bin/sudo
  : >apt
  expect 1 "missing: $everything python3; " test
  case $(cat apt) in
    *'noninteractive: update'*"noninteractive: "*" install -y --no-install-recommends $everything python3") ;;
    *) failed=1; echo "apt-get was called so: $(cat apt)" ;;
  esac
  [ "$(grep -c sudo apt)" = $((user / 500)) ] || { failed=1; echo "user $user calls sudo so: $(cat apt)"; }
done
expect 1 "run as root: apt-get install -y --no-install-recommends $everything python3" --no-install test
flash=$flash_here
rm bin/sudo

# Help of the program needs no program.
for words in 'run --help' 'run -h' run 'tour --help' 'tour 04 --help' 'run --phase 04 --help'; do
  # shellcheck disable=SC2086  # words
  expect 0 'usage: ./flash run --q Q.npy' $words
done
expect 0 'phases: 01-naive 02-online-softmax' run --help
expect 0 'phases: 01-naive 02-online-softmax' help
[ ! -e "$FLASH_BUILD" ] || { failed=1; echo 'help made a build directory'; }

# From here on all tools are there, but pretend: cmake writes down how it is called and makes what CMake would make.
mkdir -p prefix/include/eigen3/Eigen prefix/include/doctest prefix/include/xtl prefix/include/xtensor
: >prefix/include/eigen3/Eigen/Core
: >prefix/include/doctest/doctest.h
: >prefix/include/xtl/xtl_config.hpp
: >prefix/include/xtensor/xtensor_config.hpp
export CMAKE_PREFIX_PATH="$work/prefix"
ln -s "$(command -v touch)" "$(command -v chmod)" "$(command -v cp)" bin
cat >bin/cmake <<'END'
#!/bin/sh
[ "$1" != --version ] || { echo "cmake version ${CMAKE_IS:-3.25.1}"; exit; }
echo "$*" >>"$WORK/calls"
[ ! -e "$WORK/talkative" ] || while :; do echo 'a line of a long story'; done
[ ! -e "$WORK/broken" ] || { echo 'it cannot be done'; exit 1; }
if [ "$1" = --preset ]; then
  mkdir -p "$6/bin"
  printf 'CMAKE_HOME_DIRECTORY:INTERNAL=%s\nCMAKE_CACHEFILE_DIR:INTERNAL=%s\n' "$4" "$6" >"$6/CMakeCache.txt"
  printf '#!/bin/sh\necho "program: $*"\n' >"$6/bin/flash-phases"
  cp "$6/bin/flash-phases" "$6/bin/flash-exercise"
  for page in first second; do printf '#!/bin/sh\necho "%s: $*"\n' $page >"$6/bin/$page"; done
  chmod +x "$6/bin/flash-phases" "$6/bin/flash-exercise" "$6/bin/first" "$6/bin/second"
  printf '%s\n' '01 phases/01-naive/first.cpp bin/first' '01 phases/01-naive/notebook.cpp bin/second' \
    '08 phases/08-lse/notebook.cpp bin/second' >"$6/pages"
fi
END
printf '#!/bin/sh\nexit 0\n' >bin/ninja
printf '#!/bin/sh\ncase $1 in --version) echo "g++ (Debian)" ;; *) echo "${GXX_IS:-12.2.0}" ;; esac\n' >bin/g++
printf '#!/bin/sh\ncase $1 in --version) echo "Debian clang version 14.0.6" ;; *) echo 14.0.6 ;; esac\n' >bin/clang++
chmod +x bin/cmake bin/ninja bin/g++ bin/clang++

# called TEXT: cmake was called so since the last time that this was asked. not_called TEXT: it was not.
called() {
  grep -qF -e "$1" calls || { failed=1; printf 'cmake was not called with "%s" but\n%s\n' "$1" "$(cat calls)"; }
  : >calls
}
not_called() {
  if grep -qF -e "$1" calls; then failed=1; printf 'cmake was called with "%s"\n' "$1"; fi
  : >calls
}

# clang, by whatever name: one line that says what is needed.
for name in clang++ "$work/bin/clang++"; do
  export CXX="$name"
  expect 1 "$name is clang; expected g++ 11 or newer (Debian 12, Ubuntu 22.04); unset CXX or set it to one" tour
  expect 1 'C++ compiler       MISSING  g++ 11 or newer' doctor
done
unset CXX

# Versions are compared number by number.
for version in 3.9.6 3.25.0; do
  CMAKE_IS=$version expect 1 \
    "cmake is $version; expected 3.25.1 or newer (Debian 12, Ubuntu 24.04); run: pip install cmake" tour
  CMAKE_IS=$version expect 1 'CMake              MISSING  3.25.1 or newer' doctor
done
GXX_IS=10.2.1 expect 1 'g++ is 10.2.1; expected 11 or newer (Debian 12, Ubuntu 22.04); run as root: apt-get' tour

CMAKE_IS=3.100.0 GXX_IS=100.1.0 expect 0 'program: run --phase 04' run --phase 04
called '-DCMAKE_CXX_COMPILER=g++' # not CMake's own choice, c++
expect 0 'program: run --phase 04' run --phase 04
not_called --preset # built before: no second configuration
expect 0 'program: 05.2 --hint' exercise 05.2 --hint
called '--target flash-exercise'
expect 2 "flash check: --order is 'sideways'; expected forward, reverse or random" check --order sideways a.cu
called '--target flash-check'
expect 2 'flash check: no one.cu is not there' check 'no one.cu'
expect 0 'first: --page
second: --page' notebook 01
called '--target phase01_pages'

# The tests: why some were skipped stands at the end, also where one failed, and ctest's exit status is passed on.
cat >bin/ctest <<'END'
#!/bin/sh
echo "ctest $*" >>"$WORK/calls"
mkdir -p "$2/Testing/Temporary"
printf 'skipped: no GPU\nOutput:\nskipped: no browser here\nskipped: no GPU\n' >"$2/Testing/Temporary/LastTest.log"
[ ! -e "$WORK/failing" ] || exit 8
END
chmod +x bin/ctest
expect 0 'skipped, and why:
      2 no GPU
      1 no browser here' test 01
: >failing
expect 8 '      1 no browser here' test 01
rm failing
expect 0 'second: --page' notebook 1 notebook
case $out in *first*) failed=1; echo 'notebook 1 notebook prints another page too' ;; esac

# Progress goes to stderr where what a program prints may be read by another; both are shown where they are progress.
for words in 'run --phase 04' 'exercise 05.2' 'notebook 01 notebook'; do
  rm -rf "$FLASH_BUILD"
  # shellcheck disable=SC2086  # words
  (PATH=$path; "$flash" $words >out 2>err </dev/null) || failed=1
  case $words:$(cat out) in
    "run --phase 04:program: run --phase 04" | "exercise 05.2:program: 05.2" | "notebook 01 notebook:second: --page") ;;
    *) failed=1; echo "./flash $words prints on stdout: $(cat out)" ;;
  esac
  grep -q '^+ cmake --preset default' err || { failed=1; echo "./flash $words is silent about its steps: $(cat err)"; }
done

# The tests: all, or those with a phase's label; for the GPU, too, where that is asked for.
: >calls
expect 0 '+ ctest --test-dir' test
grep -qx -e "ctest --test-dir $FLASH_BUILD/default --output-on-failure --no-tests=error -j [0-9]*" calls ||
  { failed=1; echo "test: $(cat calls)"; }
grep -qx -e "--build $FLASH_BUILD/default" calls || { failed=1; echo "test does not build all: $(cat calls)"; }
called '-DFLASH_CUDA=OFF'
for number in 4 04; do
  expect 0 '+ ctest --test-dir' test $number
  grep -q -e '^ctest .* -L ^phase04\$$' calls || { failed=1; echo "test $number: $(cat calls)"; }
  called '--target phase04'
done
for words in 'test --cuda 04' '--cuda test 04' 'test 04 --cuda'; do
  # shellcheck disable=SC2086  # words
  expect 0 '+ ctest --test-dir' $words
  called '-DFLASH_CUDA=ON'
done

# For another processor: its compiler is missing, which one line says; then this computer's programs are built first,
# and everything for the other with them.
expect 1 'missing: g++-aarch64-linux-gnu python3; run as root: apt-get install' --no-install test --cross
not_called -- # before anything is configured
cp bin/g++ bin/aarch64-linux-gnu-g++
expect 0 'ctest --test-dir' test --cross
grep -v -e ^ctest calls | cut -d ' ' -f 1-5 >order
for line in "--preset default -S $(dirname "$flash") -B" "--build $FLASH_BUILD/default --target flash-launches" \
  "--preset aarch64 -S $(dirname "$flash") -B" "--build $FLASH_BUILD/aarch64"; do printf '%s\n' "$line"; done >wanted
cmp -s order wanted || { failed=1; printf 'test --cross calls cmake in this order: %s\n' "$(cat order)"; }
called "-DFLASH_CUDA=OFF -DFLASH_HOST_BUILD=$FLASH_BUILD/default"

# The book: the reader of its pages is all that is compiled, unless cells are to run. Its packages are looked for where
# Debian has them: a system without them is told so.
for tool in sphinx-build python3; do printf '#!/bin/sh\n[ "$1" = --version ] || exit 3\n' >"bin/$tool"; done
chmod +x bin/sphinx-build bin/python3
packages=/usr/lib/python3/dist-packages
if [ -e $packages/myst_parser ] && [ -e $packages/furo ] && [ -e /usr/share/javascript/katex/katex.js ]; then
  for words in '' --zip '--run 01' 01 --golden; do
    # shellcheck disable=SC2086  # words
    expect 1 'about' book $words
    case $words in
      *01) called '--target phase01_pages flash-pages' ;;
      --golden) called '--target pages flash-pages' ;;
      *) called '--target flash-pages' ;;
    esac
  done
else
  expect 1 'run as root: apt-get install -y --no-install-recommends' --no-install book
  not_called --
fi

# A checkout that was moved or copied: each command configures afresh, in the old build folder or one that came along.
cp -R "$FLASH_BUILD" 'a copy'
for command in run tour; do
  sed -i 's|^CMAKE_HOME_DIRECTORY.*|CMAKE_HOME_DIRECTORY:INTERNAL=/elsewhere|' "$FLASH_BUILD/default/CMakeCache.txt"
  expect 0 "program: $command" "$command" --x
  called --fresh
  expect 0 "program: $command" "$command" --x
  not_called --fresh
  old=$FLASH_BUILD
  FLASH_BUILD="$work/a copy"
  expect 0 "program: $command" "$command" --x
  called --fresh
  FLASH_BUILD=$old
  rm -r 'a copy'
  cp -R "$FLASH_BUILD" 'a copy'
done

# compute capability 9.0 is built with what Hopper alone has
printf '#!/bin/sh\ncase $1 in -L) ;; *) echo "$CAPABILITY" ;; esac\n' >bin/nvidia-smi
chmod +x bin/nvidia-smi
for pair in 9.0=90a 8.0=80 12.0=120; do
  export CAPABILITY="${pair%=*}"
  expect 0 'program: tour' tour
  called "-DCMAKE_CUDA_ARCHITECTURES=${pair#*=}"
done
rm bin/nvidia-smi

# Nobody reads to the end: that is no failure of the build's. (Without this, cmake's death by SIGPIPE was.)
: >talkative
for command in tour run; do
  rm -rf "$FLASH_BUILD"
  (PATH=$path; status=0; "$flash" "$command" --x 2>&1 || status=$?; echo "$status" >status) | head -n 1 >/dev/null
  [ "$(cat status)" = 141 ] || { failed=1; echo "./flash $command | head -1: exit $(cat status), want 141"; }
done
(PATH=$path; "$flash" tour 2>said || true) | head -n 1 >/dev/null
[ ! -s said ] || { failed=1; echo "./flash tour | head -1 says: $(cat said)"; }
rm talkative
: >broken
expect 1 'cmake could not configure; its message is above' tour

# A container of .devcontainer has every package that ./flash would ask for on a bare system.
root=$(dirname "$flash")
sed -n -e 's/^  has .* || tools="$tools \(.*\)"$/\1/p' -e 's/^  library .* \([^ ]*\)$/\1/p' \
  -e "s/.*extras=' \([a-z0-9]*\)'$/\1/p" -e 's/.*extras="$extras \(.*\)"$/\1/p' \
  -e 's/^  python_package .* \([^ ]*\)$/\1/p' \
  -e 's/^  \[ -e .* || tools="$tools \(.*\)"$/\1/p' "$flash" >packages
while read -r package; do
  grep -qw -e "$package" "$root/.devcontainer/Dockerfile" || { failed=1; echo "not in the Dockerfile: $package"; }
done <packages
[ "$(wc -l <packages)" -ge 12 ] || { failed=1; echo "found too few packages in $flash: $(cat packages)"; }

# The container is for every processor that debian:12 is for.
if grep -niE 'amd64|arm64|x86_64|aarch64|--platform' "$root/.devcontainer/Dockerfile"; then failed=1; fi

# What the page on other machines, the notebook and GitHub's computers call is a command; the notebook can be read.
rm -f broken
for file in docs/machines.md docs/colab.ipynb .github/workflows/arm64.yml; do
  sed -n -e 's/^ *"!\(.\/flash [^\\"]*\).*/\1/p' -e 's/^    \(.\/flash [^#]*\).*/\1/p' \
    -e 's/^ *- run: \(.\/flash .*\)/\1/p' "$root/$file" >commands
  [ -s commands ] || { failed=1; echo "$file calls nothing"; }
  while read -r _ words; do
    # shellcheck disable=SC2086  # words
    expect 0 '' $words
  done <commands
done
if command -v python3 >/dev/null; then python3 -m json.tool "$root/docs/colab.ipynb" >/dev/null || failed=1; fi

[ "$failed" = 0 ] && echo "flash_test: every answer is as promised"
exit "$failed"
