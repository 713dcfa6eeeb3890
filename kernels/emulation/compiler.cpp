/*
 * Emulates NVRTC for tests, with the part of its interface that Godwit uses. A cubin is a shared
 * library, which g++ compiles from the kernel text between emulation.h and entries.h.
 *
 *   EMULATION_FOLDER    folder of emulation.h and entries.h
 *   EMULATION_VERSION   changes with every change of these files, so that caches stay valid
 */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>
#include <unistd.h>

namespace
{

enum Result { SUCCESS = 0, INVALID_INPUT = 3, COMPILATION = 6 };

struct Program {
    std::string source, log, cubin;
};

/* PTX patterns and their C++ replacements. g++ rejects any other PTX. */
const std::pair<const char *, const char *> PTX[] = {
    {R"re(asm volatile\("ld\.acquire\.sys\.global\.v2\.u64 \{%0, %1\}, \[%2\];"\s*: "=l"\(([^)]*)\), "=l"\(([^)]*)\)\s*: "l"\(([^)]*)\)\s*: "memory"\);)re",
     "emulation::load_acquire($1, $2, $3);"},
    {R"re(asm volatile\("ld\.acquire\.sys\.global\.u32 %0, \[%1\];" : "=r"\(([^)]*)\) : "l"\(([^)]*)\) : "memory"\);)re",
     "emulation::load_acquire($1, $2);"},
    {R"re(asm volatile\("st\.release\.sys\.global\.u32 \[%0\], %1;" ::"l"\(([^)]*)\), "r"\(([^)]*)\) : "memory"\);)re",
     "emulation::store_release($1, $2);"},
    {R"re(asm\("lop3\.b32 %0, %1, %2, %3, 0x96;" : "=r"\(([^)]*)\) : "r"\(([^)]*)\), "r"\(([^)]*)\), "r"\(([^)]*)\)\);)re",
     "$1 = $2 ^ $3 ^ $4;"},
};

std::string without_ptx(std::string text)
{
    for (const auto &[ptx, replacement] : PTX) {
        text = std::regex_replace(text, std::regex(ptx), replacement);
    }
    return text;
}

/* Returns an EMULATED_KERNEL line for each kernel in the text. A kernel's name is the last name
 * before a parenthesis after `extern "C" __global__`. */
std::string entries(const std::string &text)
{
    std::string all;
    const std::string prefix = "extern \"C\" __global__";
    for (size_t at = text.find(prefix); at != std::string::npos; at = text.find(prefix, at + 1)) {
        static const std::regex name(R"re((gw_\w+)\()re");
        std::smatch match;
        const std::string rest = text.substr(at, 400);
        if (std::regex_search(rest, match, name)) {
            all += "EMULATED_KERNEL(" + match[1].str() + ")\n";
        }
    }
    return all;
}

std::string read(const std::string &path)
{
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

} // namespace

extern "C" {

Result nvrtcVersion(int *major, int *minor)
{
    *major = 0;
    *minor = EMULATION_VERSION;
    return SUCCESS;
}

Result nvrtcCreateProgram(Program **program, const char *source, const char *, int headers,
                          const char *const *, const char *const *)
{
    if (headers != 0) {
        return INVALID_INPUT;
    }
    *program = new Program{source, "", ""};
    return SUCCESS;
}

Result nvrtcCompileProgram(Program *program, int, const char *const *)
{
    char folder[] = "/tmp/godwit-emulation-XXXXXX";
    if (!mkdtemp(folder)) {
        program->log = "cannot create a temporary folder for the compiler";
        return COMPILATION;
    }
    const std::string path = folder;
    std::ofstream(path + "/kernels.cpp")
        << "#include \"emulation.h\"\n#line 1 \"kernels.cu\"\n"
        << without_ptx(program->source) << "\n#include \"entries.h\"\n"
        << entries(program->source);
    const std::string command =
        "g++ -std=c++17 -O2 -fPIC -shared -fno-strict-aliasing -w -I'" EMULATION_FOLDER "' -o " +
        path + "/kernels.so " + path + "/kernels.cpp 2> " + path + "/log";
    const bool is_compiled = system(command.c_str()) == 0;
    program->log = read(path + "/log");
    program->cubin = is_compiled ? read(path + "/kernels.so") : "";
    for (const char *name : {"/kernels.cpp", "/kernels.so", "/log"}) {
        unlink((path + name).c_str());
    }
    rmdir(folder);
    /* The driver does not get the length of a cubin, so the cubin begins with it. */
    const uint64_t bytes = program->cubin.size();
    program->cubin.insert(0, (const char *)&bytes, sizeof(bytes));
    return is_compiled ? SUCCESS : COMPILATION;
}

Result nvrtcGetCUBINSize(Program *program, size_t *bytes)
{
    *bytes = program->cubin.size();
    return SUCCESS;
}

Result nvrtcGetCUBIN(Program *program, char *cubin)
{
    memcpy(cubin, program->cubin.data(), program->cubin.size());
    return SUCCESS;
}

Result nvrtcGetProgramLogSize(Program *program, size_t *bytes)
{
    *bytes = program->log.size() + 1;
    return SUCCESS;
}

Result nvrtcGetProgramLog(Program *program, char *log)
{
    memcpy(log, program->log.c_str(), program->log.size() + 1);
    return SUCCESS;
}

const char *nvrtcGetErrorString(Result result)
{
    return result == SUCCESS ? "success" : result == COMPILATION ? "compilation" : "invalid input";
}

Result nvrtcDestroyProgram(Program **program)
{
    delete *program;
    *program = nullptr;
    return SUCCESS;
}
}
